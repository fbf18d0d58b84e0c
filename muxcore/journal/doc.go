// Package journal remembers on disk which backends of a mux lack the newest state of which keys.
//
// A [Mark] belongs to a key: what is newest there (an object, or that it was deleted), and who lacks it. Marks say what is
// to be looked after, not how: whoever repairs reads the truth when he does so, and doing it twice does no harm.
//
// One directory is one journal, for one tree; each mux of the tree has a [Scope] of it. Nothing is created before the
// first mark. Files are private (0600 in a directory 0700), for keys are data of users.
//
// # The file
//
// It is a log of lines: the CRC-32C of the rest in hex, a blank, and JSON. Each line holds the whole state of one key, so
// the last one counts, and a number, so that a missing one shows. It is rewritten when most of it is out of date. A line
// that breaks off, as it was being written when the process ended, is dropped: nobody was told that it is there. Damage
// anywhere else, in a last line that has its end as well, costs
// what was said before it: every backend is then to be compared in full ([Scope.Doubtful]), and nothing is deleted on the
// word of a damaged file.
//
// Changes are on disk (fsync) when the methods that make them return; those made at the same time share one fsync.
package journal
