"""What a graph can tell, before anything is trained."""
