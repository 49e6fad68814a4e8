"""The HTML report of a bundle: what it holds, what memory it takes when, where its time goes, how exact it
is."""
