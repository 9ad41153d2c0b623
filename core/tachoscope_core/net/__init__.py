"""What crosses the network: allowed hosts, the protocol of Kineto's daemon, queries to Prometheus."""
