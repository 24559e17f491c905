package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// confirmations counts the statements that make a commit wait for a synchronous standby.
type confirmations struct{ n atomic.Int32 }

func (c *confirmations) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "pg_logical_emit_message") {
		c.n.Add(1)
	}
	return ctx
}

func (*confirmations) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A repeated revocation waits for the standby, also if the deployment sends mail: an earlier one may have given up.
func TestG9_RepeatedRevocationOfReplayIsConfirmed(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	var confirmed confirmations
	url := credential.Secret(l.fixture.Database.Authserver)
	s, err := postgres.Open(t.Context(), postgres.Only(url), testkit.StoreWait, &confirmed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	keys := seal.NewKeys(make([]byte, 32))
	queue, err := mail.NewQueue[pgx.Tx](s.JobDriver(), postgres.MailSchema, keys, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "system", nil); err != nil {
		t.Fatal(err)
	}
	for want, mails := range []postgres.MailQueue{nil, queue} {
		s.SendMail(mails)
		if err := s.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "system", nil); err != nil {
			t.Fatal(err)
		}
		if n := int(confirmed.n.Load()); n != want+1 {
			t.Errorf("%d confirmations after %d repeated revocations", n, want+1)
		}
	}
}
