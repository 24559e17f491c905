package torture

import "github.com/almonerhq/almoner/e2e/harness"

// These faults are the protections that brokenbuilds_test.go removes.

// change returns the fault that one text of a file is another.
func change(file, old, new string) []harness.Fault {
	return []harness.Fault{{File: file, Old: old, New: new}}
}

const (
	stepsFile       = "authserver/internal/store/postgres/steps.go"
	grantTokensFile = "authserver/internal/oauth/grant/tokens.go"
	clientsFile     = "authserver/internal/store/postgres/clients.go"
	grantsFile      = "authserver/internal/oauth/grant/service.go"
	exchangesFile   = "authserver/internal/oauth/grant/exchange.go"
	decideFile      = "authserver/internal/oauth/grant/decide.go"
	redisGrantsFile = "authserver/internal/store/redis/redis.go"
	requestsFile    = "resourceapi/internal/store/postgres/requests.go"
	serveFile       = "shared/net/web/serve.go"
	rotateFile      = "authserver/internal/store/redis/lua/rotate.lua"
	exchangeFile    = "authserver/internal/store/redis/lua/exchange.lua"
	decisionFile    = "shared/contract/standing/decision.go"
	tokenFile       = "authserver/internal/endpoint/protocol/token/handler.go"
	refusalsFile    = "authserver/internal/oauth/engine/refusals.go"
)

// fenceOff makes every conditional update of a grant in Postgres succeed.
var fenceOff = change(stepsFile,
	"	if taken.Grant != nil {\n		return taken, grant.Updated, nil\n	}\n	return s.updateOne(",
	`	if taken.Grant == nil {
		var g grant.Grant
		err = s.pool.QueryRow(ctx, refusedSQL, one.WorkspaceID, one.GrantID).
			Scan(append([]any{&taken.Now}, grantTargets(&g)...)...)
		taken.Grant = foundGrant(g)
	}
	if err == nil {
		return taken, grant.Updated, nil
	}
	return s.updateOne(`)

// rotateBlindly makes the script rotate any presented token. The condition in Postgres alone would still prevent it.
var rotateBlindly = []harness.Fault{
	{File: rotateFile, Old: "if presented < generation then", New: "if false then"},
	{File: rotateFile, Old: "if hash ~= ARGV[3] then return 'replaced' end", New: ""},
	{File: rotateFile, Old: "\n  or generation ~= ARGV[2] or hash ~= ARGV[3]", New: ""},
}

// redeemBlindly makes the script redeem a code again. The condition in Postgres alone would still prevent it.
var redeemBlindly = []harness.Fault{
	{File: exchangeFile, Old: "if state == 'active' then", New: "if false then"},
	{File: exchangeFile, Old: "(state ~= 'pending' or client", New: "(client"},
}

// replayUnrevoked refuses a replay and revokes nothing in Postgres.
var replayUnrevoked = change(grantsFile,
	`	if err := s.revoke(ctx, g, reason, "client:"+g.ClientID.String(), reuse); err != nil {`,
	`	if err := ctx.Err(); err != nil {`)

// membershipCached makes resourceapi reuse the first standing that it read for a grant.
var membershipCached = []harness.Fault{
	{File: requestsFile, Old: "import (\n", New: "import (\n\t\"sync\"\n"},
	{File: requestsFile, Old: "// read sends", New: "var kept sync.Map\n\n// read sends"},
	{File: requestsFile, Old: "	return *answer.standing, answer.found, nil\n",
		New: `	first, _ := kept.LoadOrStore(one.standing.GrantID, *answer.standing)
	return first.(standing.Standing), answer.found, nil
`},
}

// workspaceNotCompared accepts a credential of one workspace in another one of which its user is a member.
var workspaceNotCompared = change(decisionFile, `case s.CredentialWorkspace != d.WorkspaceID:`, `case false:`)

// tokenLogged logs the parameters of each token request, as a developer might while debugging.
var tokenLogged = change(tokenFile, "		asked := request(r, parameters)\n",
	`		asked := request(r, parameters)
		for name, value := range parameters.Values {
			e.Log.Info("asked", name, value.Reveal())
		}
`)

// tokenStored stores the refused token together with the reason.
var tokenStored = change(refusalsFile, "	return r.recordFor(ctx, snapshot, caller, x.ended, refused)\n",
	"	return r.recordFor(ctx, snapshot, caller, x.ended, &TokenError{Description: refused.Description + "+
		"x.request.Parameters[\"refresh_token\"].Reveal()})\n")

// postgresSilent lets Redis alone decide: neither what Postgres knew before nor the result of its update prevents
// anything.
var postgresSilent = append(change(exchangesFile, "	if r.superseded(snapshot) {\n", "	if false {\n"), fenceOff...)

// repairOff does not repair a Redis that has lost its data.
var repairOff = change(exchangesFile,
	"	if err := s.rotations.Repair(repairing, g); err != nil {\n		return \"\", err\n	}\n",
	"	_ = repairing\n")

// redisRefusalBlamesToken treats a refusal by Redis as a refusal of the token.
var redisRefusalBlamesToken = change(redisGrantsFile, "	if err != nil && !reached {\n",
	"	if err != nil && !reached {\n		return grant.WrongClient, nil\n	}\n	if err != nil && !reached {\n")

// undoOff does not undo in Redis what Postgres certainly did not commit.
var undoOff = append(
	change(decideFile, "		_ = s.undo(ctx, step, Undo{}, uncertain) // the request gets err in any case\n",
		"		if uncertain {\n			s.undos.add(ctx, step)\n		}\n"),
	change(exchangesFile, "	return Issued{}, false, cmp.Or(err, s.undo(ctx, step, how, unknown))\n",
		`	if unknown {
		s.undos.add(ctx, step)
		err = cmp.Or(err, errOvertaken)
	}
	_ = how
	return Issued{}, false, err
`)...)

// undoUncertainOff does not undo what the stores may have decided without a response.
var undoUncertainOff = []harness.Fault{
	{File: decideFile, Old: "	if err != nil && uncertain {\n", New: "	if false && uncertain {\n"},
	{File: exchangesFile, Old: "	if uncertain && !decided {", New: "	if false {"},
}

// triedOnce gives up an update in Postgres after the first lost response.
var triedOnce = change(decideFile, "	commitTries  = 4\n", "	commitTries  = 1\n")

// acknowledgedBeforeCommit acknowledges a revocation before Postgres has committed it.
var acknowledgedBeforeCommit = change(grantsFile, "	return s.revoke(ctx, g, reason, actor, nil)\n",
	`	later := context.WithoutCancel(ctx)
	time.AfterFunc(time.Second, func() { _ = s.revoke(later, g, reason, actor, nil) })
	return nil
`)

// grantsOutliveClients deletes a client and leaves its grants.
var grantsOutliveClients = change(clientsFile, "ending{client: &id, reason: grant.ClientDeleted",
	"ending{client: new(uuid.UUID), reason: grant.ClientDeleted")

// successorsRandom derives no successor, so that no request can be repeated.
var successorsRandom = change(grantTokensFile, "	if proof.digest == \"\" {\n",
	"	if proof.digest == \"\" || true {\n")

// anySenderRepeats derives the successor from the credential alone, so that a thief without the key gets it too.
var anySenderRepeats = []harness.Fault{
	{File: grantTokensFile, Old: "	if proof.digest == \"\" {\n", New: "	if false {\n"},
	{File: grantTokensFile, Old: "		h.Write([]byte(proof.digest))\n", New: ""},
	{File: decideFile, Old: "	derived := matches && r.Sender.Proof != Proof{}\n", New: "	derived := matches\n"},
}

// keyIgnored derives the same successor for every key.
var keyIgnored = change(grantTokensFile, "		h.Write([]byte(proof.digest))\n", "")

// macOff accepts a well-formed token without checking its MAC.
var macOff = change(grantTokensFile, "	if authentic != 1 {\n", "	if authentic > 1 {\n")

// timeoutsOff gives a client far more time to send its request.
var timeoutsOff = change(serveFile, "	readHeaderTimeout = 5 * time.Second\n	readTimeout       = 15 * time.Second",
	"	readHeaderTimeout = 100 * time.Second\n	readTimeout       = 150 * time.Second")

// drainOff ends a process without notice and without waiting for its requests.
var drainOff = []harness.Fault{
	{File: serveFile, Old: "	case <-config.after(config.Notice):\n", New: "	case <-config.after(0):\n"},
	{File: serveFile, Old: "	if config.Notice > 0 {\n", New: "	if false {\n"},
	{File: serveFile, Old: "server.Shutdown(drain)", New: "errors.Join(server.Close(), drain.Err())"},
}

// keyInOtherTransaction stores the response of an Idempotency-Key in another transaction than the effect.
var keyInOtherTransaction = change(requestsFile, "			answer, t.err = answers.Once(t.ctx, t.Tx, key, effect)\n",
	`			apart := func(ctx context.Context, _ pgx.Tx) (made rest.Answer, err error) {
				err = inTransaction(ctx, s.pool, func(own *transaction) { made, own.err = effect(ctx, own.Tx) })
				if err == nil {
					time.Sleep(30 * time.Millisecond)
				}
				return made, err
			}
			answer, t.err = answers.Once(t.ctx, t.Tx, key, apart)
`)
