package muxcore

import "time"

// EventKind is the topic of an event.
type EventKind string

// The topics.
const (
	EventBackendDown      EventKind = "storage-mux.backend.down"      // Name, Err, Code
	EventBackendRecovered EventKind = "storage-mux.backend.recovered" // Name, Took: how long it was down
	EventFailover         EventKind = "storage-mux.failover"          // From, To, Attempt, Err
	EventFanoutPartial    EventKind = "storage-mux.fanout-partial"    // Mode, Failed, Causes
	EventDrainStarted     EventKind = "storage-mux.drain.started"     // Name, InFlight
	EventDrainCompleted   EventKind = "storage-mux.drain.completed"   // Name, Took
	EventBackendAdded     EventKind = "storage-mux.backend.added"     // Name, Weight
	EventBackendRemoved   EventKind = "storage-mux.backend.removed"   // Name
	EventWeightChanged    EventKind = "storage-mux.weight.changed"    // Name, From and To as weights
	EventRepaired         EventKind = "storage-mux.repaired"          // Name, Op: put or delete, Key, From, Cause
	EventRepairStarted    EventKind = "storage-mux.repair.started"    // Name, Pending: the journal's keys are brought to it
	EventRepairCompleted  EventKind = "storage-mux.repair.completed"  // Name, Took: it lacks none of them any more
	EventRepairFailed     EventKind = "storage-mux.repair.failed"     // Name, Err, Pending: it could not be given one, for now
	EventJournalFailed    EventKind = "storage-mux.journal.failed"    // Err: the journal could not be read
	EventAttempt          EventKind = "storage-mux.attempt"           // every call to a backend: Name, Op, Class, Took
)

// Event tells an observer what happened. Which fields are set depends on Kind.
type Event struct {
	Kind EventKind
	At   time.Time
	Tree string // Settings.Name of the mux
	Mode Mode
	Op   Op
	Key  string

	Name       string // the backend
	From, To   string // backends of a failover; From also where a repair got its copy
	Attempt    int    // index of the attempt, from 0
	Class      Class
	Code       Code
	Err        error
	Took       time.Duration
	InFlight   int
	Weight     *int
	FromWeight int
	ToWeight   int
	Failed     []string // backends that a fan-out missed
	Causes     []error  // and why, in the same order
	Cause      RepairCause
	Pending    int // keys of which a backend lacks the newest state
}

// RepairCause is what made a backend get a copy that it lacked, or lose one that it should not have.
type RepairCause string

// The causes.
const (
	CauseRepair RepairCause = "repair" // [Mux.Repair]
	CauseRead   RepairCause = "read"   // [Settings.ReadRepair]
	CauseMissed RepairCause = "missed" // a write, by the journal
)
