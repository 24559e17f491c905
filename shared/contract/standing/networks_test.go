package standing

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// recorders returns a recorder of each service. They flush when the test says so.
func (s seeded) recorders(t *testing.T) (all []*LastUseRecorder) {
	t.Helper()
	for _, url := range []string{s.Authserver, s.Resourceapi} {
		pool, err := pgxpool.New(t.Context(), url)
		must(t, err)
		t.Cleanup(pool.Close)
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		all = append(all, &LastUseRecorder{db: pool, log: log, pending: map[place]use{}, working: t.Context()})
	}
	return all
}

// of is the standing of a personal access token of the user.
func (s seeded) of(id uuid.UUID) Standing {
	return Standing{CredentialID: id, Kind: PersonalAccessToken, CredentialWorkspace: s.workspaceID, UserID: s.user}
}

// flushTogether flushes the recorders at once.
func flushTogether(all ...*LastUseRecorder) {
	var flushing sync.WaitGroup
	for _, u := range all {
		flushing.Go(u.flush)
	}
	flushing.Wait()
}

// networks returns the networks of a credential in the order of their first use, each with what is due.
func (s seeded) networks(t *testing.T, credential uuid.UUID) []string {
	t.Helper()
	rows, err := s.owner.Query(t.Context(), `select network || case when mail_due then ' mail' else '' end ||
		case when is_first then ' first' else '' end from account.credential_networks where credential_id = $1
		and tenant_id = $2 and user_id = $3 and kind = 'personal_access_token' order by first_used_at, network`,
		credential, s.workspaceID, s.user)
	must(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return found
}

// Both services note the same networks at once. The first network of a credential is due no mail, each other one.
func TestLastUse_NotesNewNetworksOnce(t *testing.T) {
	s := seed(t)
	both := s.recorders(t)
	for _, c := range []struct {
		from []string // of each service
		want []string // after all before
	}{
		{[]string{"", ""}, nil},
		{[]string{"203.0.113.7", "203.0.113.255"}, []string{"203.0.113.0/24 first"}},
		{[]string{"::ffff:203.0.113.0", "203.0.113.8"}, []string{"203.0.113.0/24 first"}},
		{[]string{"203.0.114.0", "203.0.114.1"}, []string{"203.0.113.0/24 first", "203.0.114.0/24 mail"}},
		{[]string{"2001:db8:1:2::3", "2001:db8:1:ffff::4"},
			[]string{"203.0.113.0/24 first", "203.0.114.0/24 mail", "2001:db8:1::/48 mail"}},
		{[]string{"2001:db8:2::%eth0", "203.0.112.255"}, []string{"203.0.113.0/24 first", "203.0.114.0/24 mail",
			"2001:db8:1::/48 mail", "203.0.112.0/24 mail", "2001:db8:2::/48 mail"}},
	} {
		for i, text := range c.from {
			address, _ := netip.ParseAddr(text)
			both[i].Record(s.of(s.pat), address)
		}
		flushTogether(both...)
		got := s.networks(t, s.pat)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("after %q: %q, want %q", c.from, got, c.want)
		}
	}
}

// Of two networks that two processes note at once as the first, one is the first and the other due a mail.
func TestLastUse_OneOfTwoNetworksIsFirst(t *testing.T) {
	s := seed(t)
	both := s.recorders(t)
	var all []uuid.UUID
	for range 200 {
		id := uuid.New()
		all = append(all, id)
		both[0].Record(s.of(id), netip.MustParseAddr("203.0.113.7"))
		both[1].Record(s.of(id), netip.MustParseAddr("198.51.100.7"))
	}
	flushTogether(both...)
	for _, id := range all {
		got := s.networks(t, id)
		slices.Sort(got)
		if !slices.Equal(got, []string{"198.51.100.0/24 first", "203.0.113.0/24 mail"}) &&
			!slices.Equal(got, []string{"198.51.100.0/24 mail", "203.0.113.0/24 first"}) {
			t.Errorf("%q", got)
		}
	}
}

// The day of the last use is written by a process that has not written the network within the hour.
func TestLastUse_MovesLastUseOncePerDay(t *testing.T) {
	s := seed(t)
	both := s.recorders(t)
	use := func(u *LastUseRecorder, age string) (moved bool) {
		t.Helper()
		s.exec(t, `update account.credential_networks set last_used_at = now() - $1::interval`, age)
		u.Record(s.of(s.pat), netip.MustParseAddr("203.0.113.7"))
		u.flush()
		must(t, s.owner.QueryRow(t.Context(), `select last_used_at > now() - interval '1 minute'
			from account.credential_networks`).Scan(&moved))
		return moved
	}
	use(both[0], "0")
	for _, c := range []struct {
		by    *LastUseRecorder
		moved bool
	}{{both[0], false}, {both[1], true}, {both[1], false}} {
		if moved := use(c.by, "25 hours"); moved != c.moved {
			t.Errorf("moved is %t, want %t", moved, c.moved)
		}
	}
}

// A new network replaces one that was not used for the most days, once there are too many. Of several, it is the one
// that was noted last: a network of every day stays, however early in the day it was noted. One that was forgotten is
// new again.
func TestLastUse_BoundsNetworks(t *testing.T) {
	s := seed(t)
	both := s.recorders(t)
	use := func(i int) {
		both[i%2].Record(s.of(s.pat), netip.MustParseAddr(fmt.Sprintf("10.0.%d.1", i)))
		both[i%2].flush()
	}
	var want []string
	for i := range NetworksAtMost + 3 {
		if i == NetworksAtMost {
			s.exec(t, `update account.credential_networks set last_used_at = now() - interval '3 days'
				where network in ('10.0.7.0/24', '10.0.8.0/24', '10.0.9.0/24')`)
		}
		use(i)
		switch network := fmt.Sprintf("10.0.%d.0/24", i); {
		case i == 0:
			want = append(want, network+" first")
		case i < 7 || i > 9:
			want = append(want, network+" mail")
		}
	}
	if got := s.networks(t, s.pat); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.exec(t, `update account.credential_networks set last_used_at = date_trunc('day', now(), 'UTC') +
		case when is_first then interval '2 days' else interval '2 days 23 hours' end`)
	clear(both[1].known)
	use(7)
	want = append(want[:len(want)-1], "10.0.7.0/24 mail")
	if got := s.networks(t, s.pat); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// If the first network was forgotten and others were not, a new network becomes the first and is due a mail, in one of
// two processes. If all were forgotten, which happens after the end of the credential, it is as the very first.
func TestLastUse_NotesNewNetworkWithoutTheFirst(t *testing.T) {
	s := seed(t)
	notes := func(forgotten string, want ...[]string) {
		t.Helper()
		s.exec(t, `delete from account.credential_networks where `+forgotten)
		both := s.recorders(t)
		both[0].Record(s.of(s.pat), netip.MustParseAddr("198.51.100.7"))
		both[1].Record(s.of(s.pat), netip.MustParseAddr("2001:db8::7"))
		flushTogether(both...)
		got := s.networks(t, s.pat)
		slices.Sort(got)
		if !slices.ContainsFunc(want, func(one []string) bool { return slices.Equal(got, one) }) {
			t.Errorf("%q, want one of %q", got, want)
		}
	}
	earlier := s.recorders(t)[0]
	for _, address := range []string{"203.0.113.7", "203.0.114.7"} {
		earlier.Record(s.of(s.pat), netip.MustParseAddr(address))
		earlier.flush()
	}
	notes(`is_first`,
		[]string{"198.51.100.0/24 mail first", "2001:db8::/48 mail", "203.0.114.0/24 mail"},
		[]string{"198.51.100.0/24 mail", "2001:db8::/48 mail first", "203.0.114.0/24 mail"})
	notes(`true`,
		[]string{"198.51.100.0/24 first", "2001:db8::/48 mail"},
		[]string{"198.51.100.0/24 mail", "2001:db8::/48 first"})
}

// A transaction that holds the lock of a credential can change all its networks: no process that waits for the lock has
// locked one of them.
func TestLastUse_LocksCredentialBeforeItsNetworks(t *testing.T) {
	s := seed(t)
	recorder := s.recorders(t)[0]
	for _, address := range []string{"203.0.113.7", "203.0.114.7"} {
		recorder.Record(s.of(s.pat), netip.MustParseAddr(address))
		recorder.flush()
	}
	s.exec(t, `update account.credential_networks set last_used_at = now() - interval '25 hours'`)
	clear(recorder.known)
	for _, address := range []string{"203.0.114.7", "203.0.115.7"} {
		recorder.Record(s.of(s.pat), netip.MustParseAddr(address))
	}
	tx, err := s.owner.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `select from account.credential_networks where is_first for update`)
	must(t, err)
	flushed := make(chan struct{})
	go func() { defer close(flushed); recorder.flush() }()
	watcher := testkit.Connect(t, s.Owner)
	await.True(t, "the recorder waits", func() (waits bool) {
		must(t, watcher.QueryRow(t.Context(), `select exists (select from `+testkit.Locks+` where not granted)`).
			Scan(&waits))
		return waits
	})
	_, err = tx.Exec(t.Context(), `update account.credential_networks set mail_due = false`)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	<-flushed
	if got := s.networks(t, s.pat); !slices.Equal(got, []string{
		"203.0.113.0/24 first", "203.0.114.0/24", "203.0.115.0/24 mail",
	}) {
		t.Errorf("%q", got)
	}
}
