"""Candidate partitions from classical algorithms, and how the chosen one assigns new rows."""

from coterie.proposals.assignment import Assignment
from coterie.proposals.moves import moved
from coterie.proposals.partitions import Algorithm, Proposal, Rule
from coterie.proposals.plans import Effort
from coterie.proposals.proposing import propose
from coterie.proposals.views import View, fit_views, views_of

__all__ = ["Algorithm", "Assignment", "Effort", "Proposal", "Rule", "View", "fit_views", "moved", "propose", "views_of"]
