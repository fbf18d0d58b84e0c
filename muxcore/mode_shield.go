package muxcore

// shield: the first backend is the origin, the others shield it. Reads ask the origin first, then the mirrors in order.
// One that fails is followed by the next. A Put goes to all at the same time, and the origin's word decides it: the
// mirrors commit only once the origin has; a Delete goes to all.
var shield = rule{first: firstInOrder, fanout: true, origin: true}
