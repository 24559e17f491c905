package rehearsal

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// An Outcome is what a change would do.
type Outcome struct {
	Affected    []Affected  // credentials, those with the most refused requests first
	Webhooks    []uuid.UUID // that would get no more events
	Invitations []uuid.UUID // that would end
	Sooner      int         // credentials that would stay, but expire earlier
	Requests    int64       // since Since, that would have been refused
	Operations  []Operation // of these requests, the most frequent first
	Since       time.Time   // midnight in UTC
}

// A Fate is what a change would do to a credential.
type Fate int

// The fates.
const (
	Stays   Fate = iota // it keeps its permissions; a switch may still refuse some of its requests
	Ends                // for good
	Pauses              // it is refused everything until what was switched off is on again
	Narrows             // it loses permissions
)

// An Affected is a credential that a change would affect.
type Affected struct {
	Credential
	Fate     Fate
	Loses    perm.Set // if it narrows
	Requests int64    // that would have been refused
}

// An Operation is an operation that would have been refused, by its operationId or the name of the tool.
type Operation struct {
	Name        string
	Requests    int64
	Credentials int // that made them
}

// With returns the identifiers of the tokens, or of the connections, that have a fate.
func (o Outcome) With(fate Fate, tokens bool) []uuid.UUID {
	ids := []uuid.UUID{}
	for _, a := range o.Affected {
		if a.Fate == fate && a.IsToken() == tokens {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// None reports whether the change would end, pause, narrow and refuse nothing.
func (o Outcome) None() bool {
	return len(o.Affected) == 0 && len(o.Webhooks) == 0 && len(o.Invitations) == 0 && o.Sooner == 0
}

// States of a credential that has not ended: its user is disabled, or there is no key to sign its access tokens with.
const userDisabled, keyRemoved = "user_disabled", "key_removed"

// live reports whether a credential has not ended for good.
func live(s standing.Standing) bool {
	return s.State == standing.Active || s.State == userDisabled || s.State == keyRemoved
}

// held returns what a credential may do with these modules, apart from the switch of AI assistants.
func held(s standing.Standing, modules map[string]Module) (all perm.Set) {
	for _, p := range s.CredentialPermissions.Intersect(s.MemberPermissions) {
		if of := modules[p.Module()]; !p.OfModule() || of.Enabled && of.Provisioned {
			all = append(all, p)
		}
	}
	return all
}

// A comparison compares two states of a workspace.
type comparison struct {
	workspaceID   uuid.UUID
	before, after State
	demands       map[string]standing.Demand // of each operation
}

// refuses reports whether a credential may not do an operation.
func (c comparison) refuses(s standing.Standing, modules map[string]Module, d standing.Demand) bool {
	d.WorkspaceID = c.workspaceID
	for _, p := range d.Permissions {
		if p.OfModule() {
			s.ModuleEnabled, s.ModuleProvisioned = modules[p.Module()].Enabled, modules[p.Module()].Provisioned
		}
	}
	return s.Decide(d) != standing.Allowed
}

// acts reports whether a credential may do an operation that needs a permission.
func (c comparison) acts(s standing.Standing, modules map[string]Module) bool {
	for _, d := range c.demands {
		if len(d.Permissions) > 0 && !c.refuses(s, modules, d) {
			return true
		}
	}
	return false
}

// fate returns what the change does to a credential, and what it loses.
func (c comparison) fate(was, is standing.Standing) (Fate, perm.Set) {
	if !live(is) {
		return Ends, nil
	}
	switched := is // as if nothing had been switched
	switched.LLMIntegration = was.LLMIntegration
	if c.acts(was, c.before.Modules) && !c.acts(is, c.after.Modules) && c.acts(switched, c.before.Modules) {
		return Pauses, nil
	}
	if loses := held(was, c.before.Modules).Without(held(is, c.after.Modules)); len(loses) > 0 {
		return Narrows, loses
	}
	return Stays, nil
}

// differs reports whether anything by which a request of a credential is decided differs.
func (c comparison) differs(i int) bool {
	return !reflect.DeepEqual(c.before.Standings[i], c.after.Standings[i]) ||
		!maps.Equal(c.before.Modules, c.after.Modules)
}

// refused reports whether a credential may do a known operation before, but not after.
func (c comparison) refused(i int, operation string) bool {
	d, known := c.demands[operation]
	return known && !c.refuses(c.before.Standings[i], c.before.Modules, d) &&
		c.refuses(c.after.Standings[i], c.after.Modules, d)
}

// A sum is the Outcome of the parts so far. It takes as long as they have credentials and uses.
type sum struct {
	Outcome
	operations map[string]Operation
	start      *State // of the first part
}

// startsFrom reports whether a part starts from the same as the first one.
func (s *sum) startsFrom(before State) bool {
	if s.start == nil {
		s.start = &before
	}
	return before.Base == s.start.Base && maps.Equal(before.Modules, s.start.Modules)
}

// addOthers adds the webhooks and invitations that differ.
func (s *sum) addOthers(before, after State) {
	s.Webhooks = append(s.Webhooks, without(before.Webhooks, after.Webhooks)...)
	s.Invitations = append(s.Invitations, without(before.Invitations, after.Invitations)...)
}

// without returns the ids of one list that are not in another.
func without(all, left []uuid.UUID) (gone []uuid.UUID) {
	stays := map[uuid.UUID]bool{}
	for _, id := range left {
		stays[id] = true
	}
	for _, id := range all {
		if !stays[id] {
			gone = append(gone, id)
		}
	}
	return gone
}

// addUse adds requests that would have been refused.
func (s *sum) addUse(use Use) {
	if s.operations == nil {
		s.operations = map[string]Operation{}
	}
	one := s.operations[use.Operation]
	s.operations[use.Operation] = Operation{use.Operation, one.Requests + use.Requests, one.Credentials + 1}
	s.Requests += use.Requests
}

// addCredential adds what happens to a credential of a comparison, of whose requests this many would have been refused.
func (s *sum) addCredential(one Credential, c comparison, i int, requests int64) {
	was, is := c.before.Standings[i], c.after.Standings[i]
	if !live(was) {
		return
	}
	fate, loses := c.fate(was, is)
	if fate != Ends && is.EndsAt.Before(was.EndsAt) {
		s.Sooner++
	}
	if fate != Stays || requests > 0 {
		s.Affected = append(s.Affected, Affected{one, fate, loses, requests})
	}
}

// outcome returns the sum, with its lists in order. The identifiers are never nil.
func (s *sum) outcome() Outcome {
	o := s.Outcome
	o.Webhooks, o.Invitations = append([]uuid.UUID{}, o.Webhooks...), append([]uuid.UUID{}, o.Invitations...)
	o.Operations = slices.SortedFunc(maps.Values(s.operations), func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.Affected, func(a, b Affected) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return o
}
