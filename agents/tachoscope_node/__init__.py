"""The node agent: tails the spool, ships records to the store, and serves metrics. It never imports torch."""
