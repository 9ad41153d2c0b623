"""From the segments of a job's past days to a few objects of columns, with a verdict on each hour."""
