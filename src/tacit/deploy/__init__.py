"""Real federations: keys and kits, the coordinator and the sites as services, what a site checks before it joins."""
