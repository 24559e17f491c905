package membership_test

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// refusal returns the field and the message of a refusal, or "".
func refusal(err error) string {
	if refused, ok := errors.AsType[*membership.Refusal](err); ok {
		return refused.Field + ": " + refused.Error()
	}
	return ""
}

func TestParse_RefusesAddressOrPermissionsOfInvitation(t *testing.T) {
	for text, want := range map[string]string{
		"Ada@Example.org":            "ada@example.org",
		" ada@xn--bcher-kva.example": "ada@bücher.example",
		"ada":                        "",
		"":                           "",
		"1@deleted.invalid":          "",
		"1@DELETED.invalid":          "",
	} {
		email, err := membership.ParseEmail(text)
		if email != want || (refusal(err) == "") != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, email, err, want)
		}
	}
	const none = "email: Enter an e-mail address such as ada@example.org."
	const oneMistake = "email: Not an e-mail address: “sam”. Correct or remove it."
	const mistakes = "email: Not e-mail addresses: “sam”, “a@b@c”. Correct or remove them."
	for text, want := range map[string][2]string{
		" Ada@example.org,\r\nada@example.org;\nkim@example.org, ": {"ada@example.org kim@example.org", ""},
		"ada@example.org، kim@example.org":                         {"ada@example.org kim@example.org", ""},
		"ada@example.org kim@a.org\u3000sam@a.org":                 {"ada@example.org kim@a.org sam@a.org", ""},
		"Ada Low <ada@example.org>; \"K\" < kim@example.org >":     {"ada@example.org kim@example.org", ""},
		"ada@example.org\nsam, a@b@c":                              {"", mistakes},
		"sam at home":                                              {"", none},
		"ada@example.org\nsam":                                     {"", oneMistake},
		"\n,":                                                      {"", none},
		strings.Repeat("sam,", 51):                                 {"", "email: Enter at most 50 addresses at once."},
	} {
		emails, err := membership.ParseEmails(text)
		if strings.Join(emails, " ") != want[0] || refusal(err) != want[1] {
			t.Errorf("%q: %q, %q, want %q", text, emails, refusal(err), want)
		}
	}
	for text, want := range map[string]string{
		"":                                       "permissions: Choose at least one permission.",
		"programmes:read:programmes":             "",
		"programmes:read:programmes account:all": "permissions: One of the permissions is unknown.",
		"Programmes:read:programmes":             "permissions: One of the permissions is unknown.",
	} {
		set, err := membership.ParsePermissions(strings.Fields(text))
		if refusal(err) != want || (err == nil) != (len(set) == 1) {
			t.Errorf("%q: %v, %v, want %q", text, set, err, want)
		}
	}
}

// A role gives nothing that its giver does not hold, and a viewer only reads.
func TestPresets_FollowFromPermissions(t *testing.T) {
	administers := perm.OfAccount().Scope()
	const programmes = "programmes:read:programmes programmes:write:programmes"
	for within, want := range map[string]map[string]string{
		perm.FullSet().Scope(): {
			"viewer": "programmes:read:programmes engage:read:forms engage:read:submissions account:read:members",

			"programmes-editor": programmes,
			"engage-editor":     "engage:read:forms engage:write:forms engage:read:submissions",
			"administrator":     perm.FullSet().Scope(),
		},
		programmes + " account:read:members old:read:records": {
			"viewer":            "programmes:read:programmes account:read:members",
			"programmes-editor": programmes,
		},
		administers:             {"viewer": "account:read:members", "administrator": administers},
		"engage:write:forms":    {},
		"account:write:members": {},
	} {
		got := map[string]string{}
		for _, preset := range membership.Presets(perm.ParseScope(within)) {
			got[preset.Name] = preset.Permissions.Scope()
			if of := membership.PresetOf(preset.Permissions, perm.ParseScope(within)); of.Name != preset.Name {
				t.Errorf("within %s, %s is %s", within, preset.Name, of.Name)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("within %s: %v, want %v", within, got, want)
		}
	}
	reads := perm.NewSet(perm.ProgrammesRead)
	if of := membership.PresetOf(reads, perm.FullSet()); of.Name != membership.Custom {
		t.Errorf("one of the reads is %s", of.Name)
	}
}

// An invitation is good for 7 days (contract, section 7).
func TestExpired_AtEndOfInvitation(t *testing.T) {
	now := time.Now()
	if membership.Life != 7*24*time.Hour || membership.LimitWindow != 24*time.Hour {
		t.Errorf("%s, %s", membership.Life, membership.LimitWindow)
	}
	for expires, want := range map[time.Duration]bool{time.Nanosecond: false, 0: true, -time.Nanosecond: true} {
		if got := (membership.Invitation{Expires: now.Add(expires)}).Expired(now); got != want {
			t.Errorf("%s before its end: expired %t", expires, got)
		}
	}
}

func TestLimitError_SaysLimitAndWaitToCallers(t *testing.T) {
	reached := &membership.LimitError{Limit: membership.PerInviter, Wait: time.Hour}
	limit := reached.RateLimit()
	if limit.Name != "invitations-per-inviter" || limit.Quota != 50 || limit.Window != 24*time.Hour ||
		limit.Reset != time.Hour || !strings.Contains(reached.Error(), limit.Name) {
		t.Errorf("%+v, %v", limit, reached)
	}
}

// A request for the connector policy goes to those who may change it, any other to those who manage members; they must
// be able to give what is asked for.
func TestAccessRequest_SaysWhoDecides(t *testing.T) {
	missing := perm.NewSet(perm.ProgrammesRead)
	for _, c := range []struct {
		request membership.AccessRequest
		decides perm.Permission
		needs   perm.Set
	}{
		{membership.AccessRequest{Permissions: missing}, perm.AccountWriteMembers, missing},
		{membership.AccessRequest{}, perm.AccountWriteMembers, nil},
		{membership.AccessRequest{LLMIntegration: true, Permissions: missing}, perm.AccountWriteMembers,
			perm.NewSet(perm.AccountAPIAccess)},
		{membership.AccessRequest{Policy: true}, perm.AccountAPIAccess, nil},
	} {
		if got, needs := c.request.Decides(), c.request.Needs(); got != c.decides || !slices.Equal(needs, c.needs) {
			t.Errorf("%+v: %s, %v, want %s, %v", c.request, got, needs, c.decides, c.needs)
		}
	}
}

// A ticket is bound to the sign-in and valid for a day (R1).
func TestR1_TicketIsOfOneSignInForADay(t *testing.T) {
	w := newWorkspace(t)
	keys := seal.NewKeys(bytes.Repeat([]byte{1}, 32))
	w.member(perm.AccountWriteMembers, perm.ProgrammesRead)
	offers, err := membership.NewAccessOffers(w.store.Accounts, true, keys)
	must(t, err)
	q := membership.AccessRequest{
		SignInID:    uuid.New(),
		UserID:      uuid.New(),
		WorkspaceID: w.WorkspaceID,
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Back:        []byte("/authorize?x=y"),
		Issued:      time.Now().UTC(),
	}
	offer, err := offers.Offer(t.Context(), q, nil)
	if err != nil || offer.Ticket == "" || offer.None || len(offer.People) != 0 {
		t.Fatalf("%+v, %v", offer, err)
	}
	box, err := seal.NewBox(keys, "access request")
	must(t, err)
	other := seal.NewKeys(bytes.Repeat([]byte{2}, 32))
	foreign, err := membership.NewAccessOffers(w.store.Accounts, true, other)
	must(t, err)
	for what, c := range map[string]struct {
		offers *membership.AccessOffers
		ticket string
		signIn uuid.UUID
		after  time.Duration
		valid  bool
	}{
		"at once":       {offers, offer.Ticket, q.SignInID, 0, true},
		"within a day":  {offers, offer.Ticket, q.SignInID, 24 * time.Hour, true},
		"after a day":   {offers, offer.Ticket, q.SignInID, 24*time.Hour + 1, false},
		"other sign-in": {offers, offer.Ticket, uuid.New(), 0, false},
		"other server":  {foreign, offer.Ticket, q.SignInID, 0, false},
		"no request":    {offers, box.Seal([]byte("x")), uuid.Nil, 0, false},
		"no ticket":     {offers, "", q.SignInID, 0, false},
	} {
		got, err := c.offers.Open(c.ticket, c.signIn, q.Issued.Add(c.after))
		if (err == nil) != c.valid || !c.valid && !errors.Is(err, membership.ErrTicket) {
			t.Errorf("%s: %v", what, err)
		}
		if c.valid && !reflect.DeepEqual(got, q) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if _, err := membership.NewAccessOffers(w.store.Accounts, true, seal.NewKeys()); err == nil {
		t.Error("offers without a key")
	}
}

// Without mail, a page names those who can give access, to a member who may see them.
func TestOffer_NamesManagersWhereNoMailIsSent(t *testing.T) {
	w := newWorkspace(t)
	offers := func(mails bool) *membership.AccessOffers {
		made, err := membership.NewAccessOffers(w.store.Accounts, mails, seal.NewKeys(make([]byte, 32)))
		must(t, err)
		return made
	}
	sees := perm.NewSet(perm.AccountReadMembers)
	q := membership.AccessRequest{UserID: uuid.New(), WorkspaceID: w.WorkspaceID}
	offer := func(mails bool, held perm.Set) membership.AccessOffer {
		t.Helper()
		got, err := offers(mails).Offer(t.Context(), q, held)
		must(t, err)
		return got
	}
	for _, mails := range []bool{true, false} {
		if got := offer(mails, sees); !got.None || got.Ticket != "" || len(got.People) != 0 {
			t.Errorf("mails %t, nobody can give access: %+v", mails, got)
		}
	}
	manager := w.member(perm.AccountWriteMembers)
	if got := offer(false, nil); got.None || got.Ticket != "" || len(got.People) != 0 {
		t.Errorf("who must not see the members: %+v", got)
	}
	if got := offer(false, sees); got.None || got.Ticket != "" || len(got.People) != 1 ||
		got.People[0].UserID != manager.UserID {
		t.Errorf("who may see the members: %+v", got)
	}
	w.store.Close()
	if got, err := offers(true).Offer(t.Context(), q, nil); err == nil || got.Ticket != "" || got.None {
		t.Errorf("without a store: %+v, %v", got, err)
	}
}
