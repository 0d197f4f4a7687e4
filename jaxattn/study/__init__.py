"""What every experiment shares: settings and recording, measuring, claims and statistics, style, and running it all."""
