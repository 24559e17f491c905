// Package event describes the events of a workspace: what changed, and when (contract, section 6a).
//
// The database writes an event in the transaction of its change. It gives an event its sequence when events are read,
// so that no event appears later with a lower one. Package endpoint/events serves them.
package event

import (
	"encoding/json"
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// An Event says that a record changed. It contains no values.
type Event struct {
	Sequence int64
	Type     string          // a subject and what happened to it, such as programme.created
	Data     json.RawMessage // the id and, of an update, the names of the changed fields
	At       time.Time
}

// needs are the permissions that reading the events of each subject needs.
var needs = map[string]perm.Permission{
	"programme":  perm.ProgrammesRead,
	"form":       perm.EngageReadForms,
	"submission": perm.EngageReadSubmissions,
	"member":     perm.AccountReadMembers,
	"connection": perm.AccountAPIAccess,
}

// Readable returns the subjects whose events may be read with these permissions.
func Readable(held perm.Set) []string {
	subjects := []string{}
	for subject, need := range needs {
		if held.Has(need) {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}
