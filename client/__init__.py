"""The data owner's side: answers the queries of a campaign with randomised reports."""
