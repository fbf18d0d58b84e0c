package muxcore

// failover: one backend is asked at a time. They are asked in the order of the config, backups after all others. One that
// fails or does not let us is followed by the next; any other answer is final. A Put goes to the first that takes it, a
// Delete to all.
var failover = rule{first: firstInOrder}

func firstInOrder(*Mux, *pool, string) int { return 0 }
