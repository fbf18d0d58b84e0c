// Package fleet is a whole fleet in virtual time: nodes with the real mux, or the real breakers, over origins that fail, slow
// down and recover together. There are no sockets, and no time passes: it runs in a bubble of testing/synctest.
//
// It is there to see what one node alone does not show: whether all come back in step, and what they put on origins that are
// just recovering, held against nodes that just try again.
package fleet
