"""Models from the Hugging Face hub: `source.HubSource`, and what it is made of."""
