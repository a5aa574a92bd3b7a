"""The trials of a running search: the queue, what they report, and what is known of their failures and costs."""
