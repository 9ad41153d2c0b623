"""The contract that all parts of tachoscope share: records, names, taxonomy, report, spool and store. Imports none of them."""
