"""How a finding is made: its certainty, the ranks it names, what was not measured."""
