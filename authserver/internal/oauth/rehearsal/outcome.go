package rehearsal

import (
	"bytes"
	"cmp"
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
			ids = append(ids, a.CredentialID)
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

// outcome returns what differs, without requests, and the operations that each credential may do before but not after.
func (c comparison) outcome() (found Outcome, refused map[uuid.UUID][]string) {
	refused = map[uuid.UUID][]string{}
	for i, was := range c.before.Credentials {
		is := c.after.Credentials[i].Standing
		if !live(was.Standing) {
			continue
		}
		for operation, d := range c.demands {
			if !c.refuses(was.Standing, c.before.Modules, d) && c.refuses(is, c.after.Modules, d) {
				refused[was.CredentialID] = append(refused[was.CredentialID], operation)
			}
		}
		one := Affected{Credential: was}
		one.Fate, one.Loses = c.fate(was.Standing, is)
		if one.Fate != Ends && is.EndsAt.Before(was.EndsAt) {
			found.Sooner++
		}
		if one.Fate != Stays || len(refused[was.CredentialID]) > 0 {
			found.Affected = append(found.Affected, one)
		}
	}
	found.Webhooks = without(c.before.Webhooks, c.after.Webhooks)
	found.Invitations = without(c.before.Invitations, c.after.Invitations)
	return found, refused
}

// without returns the ids of one list that are not in another. It is never nil.
func without(all, left []uuid.UUID) []uuid.UUID {
	gone := []uuid.UUID{}
	for _, id := range all {
		if !slices.Contains(left, id) {
			gone = append(gone, id)
		}
	}
	return gone
}

// addUses adds requests that would have been refused. at are the positions of the credentials in Affected.
func (o *Outcome) addUses(uses []Use, at map[uuid.UUID]int) {
	for _, use := range uses {
		o.Requests += use.Requests
		o.Affected[at[use.CredentialID]].Requests += use.Requests
		i := slices.IndexFunc(o.Operations, func(one Operation) bool { return one.Name == use.Operation })
		if i < 0 {
			i, o.Operations = len(o.Operations), append(o.Operations, Operation{Name: use.Operation})
		}
		o.Operations[i].Requests += use.Requests
		o.Operations[i].Credentials++
	}
}

// finish leaves out credentials that nothing happens to, and sorts the operations and the credentials.
func (o *Outcome) finish() {
	o.Affected = slices.DeleteFunc(o.Affected, func(a Affected) bool { return a.Fate == Stays && a.Requests == 0 })
	slices.SortFunc(o.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.Affected, func(a, b Affected) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), bytes.Compare(a.CredentialID[:], b.CredentialID[:]))
	})
}
