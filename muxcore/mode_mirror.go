package muxcore

// mirror: all backends are equals. Reads ask all that are up at the same time, and the first answer wins. A failure costs
// nothing as long as one answers; a key is missing only when all say so. A Put goes to all and succeeds once
// Settings.WriteQuorum of them hold it; a Delete goes to all.
var mirror = rule{first: firstInOrder, race: true, fanout: true}
