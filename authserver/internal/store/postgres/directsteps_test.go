package postgres_test

import (
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// directly takes a step without a snapshot.
func (l *storeTest) directly(step grant.Step) (grant.UpdateResult, error) {
	l.Helper()
	if step.Generation == 1 {
		step.Binding = l.grant.CodeBinding
	}
	terms := grant.CodeTerms{ClientID: l.grant.ClientID, Resource: l.grant.Resource}
	snapshot, result, err := l.AdvanceDirectly(l.Context(), step, terms, nil)
	l.complete(snapshot, result)
	return result, err
}

// complete checks that a step that is not refused comes with its grant.
func (l *storeTest) complete(snapshot grant.Snapshot, result grant.UpdateResult) {
	l.Helper()
	if result != grant.Refused && (snapshot.Now.IsZero() || snapshot.Grant == nil || snapshot.Grant.ID != l.grant.ID ||
		len(snapshot.Grant.Permissions) == 0) {
		l.Errorf("%+v", snapshot)
	}
}

// Every cause for which Blocked refuses a grant, alone and with others, refuses a direct step. Without a cause, the
// step is taken.
func TestDirectSteps_AreRefusedWhereSnapshotIsBlocked(t *testing.T) {
	eachWay(t, ownStoreTest, func(_ *testing.T, l *storeTest) {
		l.pending()
		causes := []string{
			`update account.grants set ends_at = now() + interval '900 ms'`,
			`update account.users set disabled_at = now()`,
			`update account.memberships set user_id = user_id where false`, // no cause
			`delete from account.memberships`,
			`update account.tenant_features set enabled = false`,
			`delete from account.tenant_features`,
			`update account.memberships set permissions = '{engage:read:forms}'`,
			`update account.memberships set permissions = '{}'`,
		}
		for chosen := range 1 << len(causes) {
			if n := bits.OnesCount(uint(chosen)); n > 2 && n < len(causes) {
				continue // each alone, with each other, and all
			}
			var sql []string
			for i, cause := range causes {
				if chosen&(1<<i) != 0 {
					sql = append(sql, cause)
				}
			}
			l.agrees(strings.Join(sql, "; "))
		}
	})
}

// agrees compares both answers in the state after sql, and restores the state.
func (l *storeTest) agrees(sql string) {
	l.Helper()
	ctx := l.Context()
	restore := `delete from account.memberships; insert into account.memberships select * from saved_memberships;
		delete from account.tenant_features; insert into account.tenant_features select * from saved_features;
		update account.users set disabled_at = null;
		update account.grants set ends_at = now() + interval '1 hour', state = 'pending', generation = 0,
			refresh_hash = null, code_binding = '\x` + strings.Repeat("01", 32) + `'`
	l.fixture.Exec(`create table if not exists saved_memberships as table account.memberships`)
	l.fixture.Exec(`create table if not exists saved_features as table account.tenant_features`)
	l.fixture.Exec(sql)
	snapshot, err := l.Snapshot(ctx, l.grant.ClientID, l.grant.Key())
	must(l, err)
	allowed := snapshot.Blocked() == grant.NotBlocked
	for generation := range uint32(2) {
		if generation == 1 {
			l.fixture.Exec(`update account.grants set state = 'active', generation = 1`)
		}
		step := l.step(uuid.NewString(), generation+1, hash(20))
		result, err := l.directly(step)
		if err != nil || (result == grant.Updated) != allowed {
			l.Errorf("generation %d, Blocked %q: %v %v, after %s", generation+1, snapshot.Blocked(), result, err, sql)
		}
	}
	l.fixture.Exec(restore)
}

// A direct step reads its own grant and no other of its user, also with a plan from when there was one grant.
func TestDirectSteps_ReadNoOtherGrants(t *testing.T) {
	testkit.SkipIfDistributed(t, "it takes single steps")
	l := ownStoreTest(t)
	l.pending()
	wants(l, grant.Updated)(l.directly(l.step(uuid.NewString(), 1, hash(20))))
	session, err := l.Acquire(l.Context())
	must(t, err)
	defer session.Release()
	read := func() (rows int) {
		for range 8 { // Postgres keeps the plan of the sixth
			var err error
			step := l.step(uuid.NewString(), 2, hash(21))
			rows, err = l.RowsReadByDirectStep(l.Context(), session, step, l.grant.ClientID, l.grant.Resource)
			must(l, err)
		}
		return rows
	}
	before := read()
	l.fixture.Exec(`insert into account.grants select (jsonb_populate_record(null::account.grants,
		to_jsonb(g) || jsonb_build_object('id', gen_random_uuid()))).* from account.grants g, generate_series(1, 2000)`)
	if after := read(); before == 0 || after > before {
		t.Errorf("a step reads %d grants with one grant, and %d with 2,001", before, after)
	}
}

// A client that was deleted, or that must authenticate now, and a request for another client or resource get nothing.
func TestDirectSteps_ClientAndResourceMustMatch(t *testing.T) {
	eachWay(t, newStoreTest, func(_ *testing.T, l *storeTest) {
		l.pending()
		own := l.grant
		step := func(generation uint32) grant.Step { return l.step(uuid.NewString(), generation, hash(30)) }
		for generation := uint32(1); generation <= 2; generation++ {
			for _, sql := range [][2]string{
				{
					`update account.oauth_clients set deleted_at = now() where id = $1`,
					`update account.oauth_clients set deleted_at = null where id = $1`,
				},
				{
					`update account.oauth_clients set metadata_url = 'https://a.example/' || id, tenant_id = null,
						resource = '', document_read_at = now(), document_fresh_until = now(), keys = '{}',
						token_endpoint_auth_method = 'private_key_jwt' where id = $1`,
					`update account.oauth_clients set metadata_url = null, keys = null,
						tenant_id = '` + own.WorkspaceID.String() + `',
						resource = '` + own.Resource + `', token_endpoint_auth_method = 'none' where id = $1`,
				},
			} {
				l.fixture.Exec(sql[0], own.ClientID)
				wants(l, grant.Refused)(l.directly(step(generation)))
				l.fixture.Exec(sql[1], own.ClientID)
			}
			l.grant.ClientID = l.fixture.Connector(own.Resource).ID
			wants(l, grant.Refused)(l.directly(step(generation)))
			l.grant = own
			l.grant.Resource = "https://api.example.org/mcp"
			wants(l, grant.Refused)(l.directly(step(generation)))
			l.grant = own
			wants(l, grant.Updated)(l.directly(step(generation)))
		}
	})
}

// Redis decides a direct step anew. If another try took the same step in Postgres, Redis has lost data.
func TestDirectSteps_OnlyOwnStepIsRepeated(t *testing.T) {
	eachWay(t, newStoreTest, func(_ *testing.T, l *storeTest) {
		l.pending()
		for generation := uint32(1); generation <= 2; generation++ {
			own := l.step(uuid.NewString(), generation, hash(40))
			wants(l, grant.Updated)(l.directly(own))
			wants(l, grant.Updated)(l.directly(own)) // G8
			other := own
			other.Nonce = uuid.NewString()
			wants(l, grant.Refused)(l.directly(other))
		}
	})
}

// Concurrent direct steps share a statement, and each gets its own grant.
func TestDirectSteps_AreBatched(t *testing.T) {
	l := newStoreTest(t)
	grants := make([]grant.Grant, 3)
	for i := range grants {
		grants[i] = l.grant
		grants[i].ID = uuid.New()
		wants(l, grant.Pending)(l.approve(t.Context(), grants[i]))
	}
	steps := make([]grant.Step, len(grants))
	for i, g := range grants {
		steps[i] = l.step(uuid.NewString(), 1, hash(byte(50+i)))
		steps[i].GrantID = g.ID
	}
	steps[1].GrantID = uuid.New()
	taken, err := l.TakeDirectly(t.Context(), steps, l.grant.CodeBinding, l.grant.ClientID, l.grant.Resource)
	must(t, err)
	for i, g := range taken {
		if (g == nil) != (i == 1) || g != nil && g.ID != grants[i].ID {
			t.Errorf("%d: %+v", i, g)
		}
	}
}

// A grant that is revoked during the step is a race. One that was revoked before is refused.
func TestDirectSteps_OnlyLaterRevocationIsRace(t *testing.T) {
	eachWay(t, newStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		step := l.fresh(1, hash(60))
		must(t, l.Revoke(t.Context(), l.grant.Key(), grant.CodeReused, "client:x", nil))
		wants(l, grant.Overtaken)(l.directly(step))
		l.fixture.Exec(`update account.grants set revoked_at = revoked_at - interval '1 minute'
			where tenant_id = $1`, l.fixture.WorkspaceID)
		wants(l, grant.Refused)(l.directly(step))
		l.fixture.Exec(`update account.grants set revoked_at = now() where tenant_id = $1`, l.fixture.WorkspaceID)
		wants(l, grant.Overtaken)(l.directly(step)) // the same step, tried again
		step.Nonce, step.Hash = uuid.NewString(), hash(61)
		wants(l, grant.Refused)(l.directly(step)) // a second success of the generation
	})
}

// Postgres may lose an advance in a crash while Redis holds it. The winner of the next race succeeds nevertheless.
func TestDirectSteps_RaceAfterLostAdvanceHasWinner(t *testing.T) {
	eachWay(t, newStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		wants(l, grant.Updated)(l.directly(l.fresh(1, hash(80))))
		winner := l.fresh(3, hash(82)) // generation 2 is lost
		must(t, l.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "client:x", nil))
		wants(l, grant.Overtaken)(l.directly(winner))
		winner.Nonce, winner.Hash = uuid.NewString(), hash(83)
		wants(l, grant.Refused)(l.directly(winner))  // a second success of the generation
		earlier := l.fresh(2, hash(81))              // Redis was restored from an older copy
		earlier.Began = winner.Began                 // it began before the revocation
		wants(l, grant.Refused)(l.directly(earlier)) // a later generation succeeded
	})
}

func TestG2_OneStepSucceedsOnRevokedGrant(t *testing.T) {
	const steps = 2
	l := ownStoreTest(t)
	l.Store = l.open(await.Long)
	wants(l, grant.Pending)(l.approve(t.Context(), l.grant))
	racing := l.fresh(1, nil)
	must(t, l.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "client:x", nil))
	locked := l.lock(`select from account.grants where tenant_id = $1 for no key update`, l.fixture.WorkspaceID)
	var succeeded atomic.Int32
	var group sync.WaitGroup
	for i := range steps {
		step := racing
		step.Nonce, step.Hash = uuid.NewString(), hash(byte(70+i))
		group.Go(func() {
			result, err := l.directly(step)
			if err != nil {
				t.Error(err)
			}
			if result == grant.Overtaken {
				succeeded.Add(1)
			}
		})
	}
	await.True(t, "every step waits for the lock", func() bool {
		return l.count(`select count(*) from `+testkit.Locks+` where not granted`) == steps
	})
	must(t, locked.Commit(t.Context()))
	group.Wait()
	if succeeded.Load() != 1 {
		t.Errorf("%d steps succeeded", succeeded.Load())
	}
}

// A step that waits for its grant while its member or its client ends may still succeed, because it began before. If
// the grant was revoked meanwhile, its tokens are invalid already. The next step is refused.
func TestDirectSteps_EndWhileWaiting(t *testing.T) {
	const revoke = `update account.grants set state = 'revoked', revoked_at = clock_timestamp(),
		revoke_reason = 'user'`
	for sql, want := range map[string]grant.UpdateResult{
		`delete from account.memberships`:                          grant.Updated,
		`update account.oauth_clients set deleted_at = now()`:      grant.Updated,
		`delete from account.memberships; ` + revoke:               grant.Overtaken,
		`update account.tenant_features set enabled = false`:       grant.Updated,
		`update account.memberships set permissions = '{}'`:        grant.Updated,
		`update account.users set disabled_at = now(); ` + revoke:  grant.Overtaken,
		`update account.grants set permissions = '{}'`:             grant.Refused,
		`update account.grants set ends_at = now()`:                grant.Refused,
		`update account.grants set last_used_at = now()`:           grant.Updated,
		`delete from account.grants; delete from account.endings;`: grant.Refused,
	} {
		eachWay(t, ownStoreTest, func(t *testing.T, l *storeTest) {
			l.Store = l.open(await.Long)
			l.pending()
			wants(l, grant.Updated)(l.directly(l.fresh(1, hash(1))))
			locked := l.lock(`select from account.grants where tenant_id = $1 for no key update`, l.fixture.WorkspaceID)
			done := make(chan func())
			step := l.fresh(2, hash(2))
			go func() {
				result, err := l.directly(step)
				done <- func() { wants(l, want)(result, err) }
			}()
			await.True(t, "the step waits for the lock", func() bool {
				return l.count(`select count(*) from `+testkit.Locks+` where not granted`) == 1
			})
			must(t, errOf(locked.Exec(t.Context(), sql)))
			must(t, locked.Commit(t.Context()))
			(<-done)()
			if strings.Contains(sql, "last_used_at") {
				return
			}
			wants(l, grant.Refused)(l.directly(l.fresh(3, hash(3))))
		})
	}
}
