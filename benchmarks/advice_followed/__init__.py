"""Follows the advice of reports: is the step then as short as promised?"""
