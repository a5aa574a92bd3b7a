"""Strategies whose points do not depend on the outcomes of trials."""
