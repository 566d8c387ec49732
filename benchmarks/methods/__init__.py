"""Methods that suites name: functions of rows or sets, some of which are given the number of clusters."""
