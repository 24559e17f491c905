package postgres_test

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Steps of grants wait for a connection and for a lock as long as ALMONER_STORE_WAIT says.
func TestSteps_WaitAsConfigured(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(testkit.StoreWait*2/3, release) // more than a second
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 2))

	holder, err := l.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), "select from account.grants where id = $1 for update", l.grant.ID); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	time.AfterFunc(testkit.StoreWait*3/10, func() { ended <- holder.Rollback(t.Context()) }) // more than 400 ms
	l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(3)))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
