"""`python -m benchmarks.lab`."""

from benchmarks.lab.run import main

main()
