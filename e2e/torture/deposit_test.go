package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A deposit is what stands ready before a store fails: one credential of every kind and in every state. Afterwards
// nobody may have got anything back that was gone, and nobody may have lost what was theirs.
type deposit struct {
	*harness.Product
	harness.Office
	connector harness.Connector
	head      *harness.Person

	redeemed      harness.Attempt // its code was used
	redeemedForm  string
	ofRedeemed    harness.Tokens
	waiting       harness.Attempt // its code was not used
	waitingCode   string
	honest        harness.Tokens // current
	old, replayed harness.Tokens // superseded, and what came after it
	revoked       harness.Tokens
	long          harness.Tokens // of a confidential application
}

// newDeposit makes everything, so that what is decided before middle is called can be told from what is decided after
// it: an older copy of a store that is kept in the middle knows every grant, and none as it is now.
func newDeposit(
	t *testing.T,
	p *harness.Product,
	office harness.Office,
	connector harness.Connector,
	app harness.ConfidentialApp,
	middle func(),
) *deposit {
	t.Helper()
	d := &deposit{
		Product:   p,
		Office:    office,
		connector: connector,
		head:      p.Person(t, office.Head),
		redeemed:  connector.Begin(),
		waiting:   connector.Begin(),
	}
	d.redeemedForm = d.redeemed.Code(t, d.head)
	d.honest, d.old, d.revoked = connector.Connect(
		t,
		d.head,
	), connector.Connect(
		t,
		d.head,
	), connector.Connect(
		t,
		d.head,
	)
	d.long = app.Connect(t, d.head)
	middle()
	d.ofRedeemed = d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).Tokens(t)
	d.waitingCode = d.waiting.Code(t, d.head)
	d.honest = connector.Refresh(t, d.honest.RefreshToken).Tokens(t)
	d.replayed = connector.Refresh(t, d.old.RefreshToken).Tokens(t)
	connector.Revoke(t, d.revoked.RefreshToken).Wants(t, http.StatusOK)
	return d
}

// wantsUnnoticed checks those who never notice that Redis fails: personal access tokens, confidential tokens, access
// tokens.
func (d *deposit) wantsUnnoticed(t *testing.T) {
	t.Helper()
	for _, token := range []string{d.Token, d.long.AccessToken, d.honest.AccessToken} {
		d.In(d.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
}

// wantsUnavailable checks that whoever needs the failing store is told 503, and never that they are at fault.
func (d *deposit) wantsUnavailable(t *testing.T) {
	t.Helper()
	for _, answer := range []harness.Answer{
		d.connector.Refresh(t, d.honest.RefreshToken), d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)),
	} {
		answer.WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		answer.WantsRetryAfter(t)
	}
}

// wantsKept is the table at the end of the grant store's description.
func (d *deposit) wantsKept(t *testing.T) {
	t.Helper()
	d.wantsUnnoticed(t)
	d.honest = d.connector.WantsAlive(t, d.honest)
	d.connector.WantsAlive(t, d.honest)
	d.connector.WantsDead(t, d.revoked)
	d.connector.Refresh(t, d.old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsDead(t, d.replayed)
	d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsDead(t, d.ofRedeemed)
	d.connector.WantsDead(t, d.revoked)
}

// wantsCode checks that a code that nobody used is still good. Only a store that has lost its memory may have forgotten
// it.
func (d *deposit) wantsCode(t *testing.T) {
	t.Helper()
	d.connector.WantsAlive(t, d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)).Tokens(t))
}
