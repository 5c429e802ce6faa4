"""Control: which drafter and how many tokens, round by round."""
