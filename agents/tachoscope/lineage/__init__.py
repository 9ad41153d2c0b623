"""What a run was made of: its code, command, hyperparameters and the run of an experiment tracker."""
