package torture

import "github.com/almonerhq/almoner/e2e/harness"

// The protections that bites_test.go takes away.

const (
	stepsFile    = "authserver/internal/store/postgres/steps.go"
	mintFile     = "authserver/internal/oauth/grant/tokens.go"
	clientsFile  = "authserver/internal/store/postgres/clients.go"
	grantsFile   = "authserver/internal/oauth/grant/service.go"
	decideFile   = "authserver/internal/oauth/grant/decide.go"
	registerFile = "authserver/internal/store/redis/grants.go"
	writesFile   = "resourceapi/internal/store/postgres/writes.go"
	serveFile    = "shared/web/serve.go"
	scriptFile   = "authserver/internal/store/redis/script.go"
	rotateFile   = "authserver/internal/store/redis/lua/rotate.lua"
	exchangeFile = "authserver/internal/store/redis/lua/exchange.lua"
	tripsFile    = "resourceapi/internal/store/postgres/trips.go"
	accessFile   = "resourceapi/internal/gate/access.go"
	tokenFile    = "authserver/internal/endpoint/token/handler.go"
	refusalsFile = "authserver/internal/oauth/engine/refusals.go"
)

// fenceOff lets every conditional update of a grant in Postgres pass.
var fenceOff = harness.Fault{
	File: stepsFile,
	Old:  "	if passed {\n		return grant.Updated, nil\n	}\n	return s.updateOne(",
	New:  "	if passed || err == nil {\n		return grant.Updated, nil\n	}\n	return s.updateOne(",
}

// rotateBlindly lets the script rotate whatever token is presented. The fence alone would still stop it.
var rotateBlindly = []harness.Fault{
	{File: rotateFile, Old: "if presented < generation then", New: "if false then"},
	{File: rotateFile, Old: "if hash ~= ARGV[3] then return 'replaced' end", New: ""},
}

// redeemBlindly lets the script redeem a code again. The fence alone would still stop it.
var redeemBlindly = harness.Fault{File: exchangeFile, Old: "if state == 'active' then", New: "if false then"}

// replayUnrevoked refuses a replay and revokes nothing in Postgres.
var replayUnrevoked = harness.Fault{File: grantsFile,
	Old: `	if err := k.revoke(ctx, g.ID, g.Ends, reason, "client:"+g.ClientID.String()); err != nil {`,
	New: `	if err := ctx.Err(); err != nil {`,
}

// membershipCached lets resourceapi go on with the first standing that it read of a grant.
var membershipCached = []harness.Fault{
	{File: tripsFile, Old: "import (\n", New: "import (\n\t\"sync\"\n"},
	{File: tripsFile, Old: "// travel makes", New: "var kept sync.Map\n\n// travel makes"},
	{File: tripsFile, Old: "	return *answer.standing, answer.found, nil\n",
		New: `	first, _ := kept.LoadOrStore(one.question.GrantID, *answer.standing)
	return first.(standing.Standing), answer.found, nil
`},
}

// workspaceNotCompared lets a credential of one workspace in where its user is a member of another.
var workspaceNotCompared = harness.Fault{
	File: accessFile,
	Old:  "	case s.CredentialWorkspace != workspaceID:\n",
	New:  "	case false:\n",
}

// tokenLogged writes a line for each token request, as one does while looking for something.
var tokenLogged = harness.Fault{
	File: tokenFile,
	Old:  "		asked := request(r, parameters)\n",
	New:  "		asked := request(r, parameters)\n		d.Log.Info(\"asked\", \"parameters\", parameters)\n",
}

// tokenStored keeps what was refused beside the reason.
var tokenStored = harness.Fault{
	File: refusalsFile,
	Old:  "	return n.recordFor(ctx, facts, caller, x.ended, refused)\n",
	New: "	return n.recordFor(ctx, facts, caller, x.ended, &TokenError{Description: refused.Description + " +
		"x.request.RefreshToken.Reveal()})\n",
}

// postgresSilent lets Redis alone decide: neither what Postgres knows before, nor what it says afterwards, stops
// anything.
var postgresSilent = []harness.Fault{
	fenceOff,
	{File: grantsFile, Old: "if old.Generation < g.Generation && ", New: "if false && "},
	{File: grantsFile, Old: "		return Issued{}, k.redeemedAgain(ctx, *g, code, terms)\n", New: ""},
}

// repairOff leaves a Redis that has lost its memory as it is.
var repairOff = harness.Fault{File: grantsFile,
	Old: "	if err := k.repair(ctx, g); err != nil {\n		return \"\", err\n	}\n",
	New: "",
}

// redisBlamesTheCaller takes a refusal of Redis for one of the token.
var redisBlamesTheCaller = harness.Fault{
	File: registerFile,
	Old:  "	if err != nil && !reached {\n",
	New:  "	if err != nil && !reached {\n		return grant.Stranger, nil\n	}\n	if err != nil && !reached {\n",
}

// scriptsTakenForKnown shows Redis the source of each script once.
var scriptsTakenForKnown = []harness.Fault{
	{File: scriptFile, Old: "import (\n", New: "import (\n\t\"sync\"\n"},
	{File: scriptFile, Old: "func newScript(", New: "var shown sync.Map\n\nfunc newScript("},
	{File: scriptFile, Old: "	value, err := c.script.Run(ctx, ", New: `	run := c.script.Run
	if _, known := shown.LoadOrStore(c.script.Hash(), true); known {
		run = c.script.EvalSha
	}
	value, err := run(ctx, `},
}

// undoOff leaves in Redis what Postgres certainly did not commit.
var undoOff = harness.Fault{
	File: decideFile,
	Old:  "	if err != nil && (!k.undoRotation(ctx, step) || uncertain) {\n",
	New:  "	if err != nil && uncertain {\n",
}

// takeBackOff leaves in the stores what they decided without an answer.
var takeBackOff = harness.Fault{
	File: decideFile,
	Old:  "	if uncertain {\n		k.undos.add(ctx, step)\n",
	New:  "	if false && uncertain {\n		k.undos.add(ctx, step)\n",
}

// deadlinesOff lets scripts decide whenever Redis gets them.
var deadlinesOff = harness.Fault{File: scriptFile, Old: "if deadline == 0 or now < deadline then", New: "if true then"}

// askedOnce gives up an update of Postgres at the first lost answer.
var askedOnce = harness.Fault{File: decideFile, Old: "	commitTries  = 4\n", New: "	commitTries  = 1\n"}

// revokedLater acknowledges a revocation before Postgres has committed it.
var revokedLater = harness.Fault{
	File: grantsFile,
	Old:  "	return k.revoke(ctx, g.ID, g.Ends, reason, actor)\n",
	New: `	later := context.WithoutCancel(ctx)
	time.AfterFunc(time.Second, func() { _ = k.revoke(later, g.ID, g.Ends, reason, actor) })
	return nil
`,
}

// grantsOutliveClients deletes a client and leaves its grants.
var grantsOutliveClients = harness.Fault{
	File: clientsFile,
	Old:  "revokeWhere(ctx, tx, `g.client_id = @client`",
	New:  "revokeWhere(ctx, tx, `g.client_id = @client and false`",
}

// macOff believes what is spelled like a token.
var macOff = harness.Fault{File: mintFile, Old: "	if authentic != 1 {\n", New: "	if authentic > 1 {\n"}

// timeoutsOff lets a client take as long as it likes to send its request.
var timeoutsOff = harness.Fault{
	File: serveFile,
	Old:  "		ReadHeaderTimeout: readHeaderTimeout,\n		ReadTimeout:       readTimeout,\n",
	New:  "		ReadHeaderTimeout: 20 * readHeaderTimeout,\n		ReadTimeout:       10 * readTimeout,\n",
}

// drainOff ends a process that is told to without notice and in the middle of its requests.
var drainOff = []harness.Fault{
	{File: serveFile, Old: "	case <-time.After(config.Notice):\n", New: "	case <-time.After(0):\n"},
	{File: serveFile, Old: "server.Shutdown(drain)", New: "errors.Join(server.Close(), drain.Err())"},
}

// keyApart stores the answer of an Idempotency-Key in another transaction than what was done under it.
var keyApart = []harness.Fault{
	{File: writesFile, Old: "import (\n", New: "import (\n\t\"time\"\n"},
	{
		File: writesFile,
		Old:  "		if answer, err = effect(ctx, tx); err != nil || !key.Given() {\n",
		New: `		apart := func(own pgx.Tx) (err error) { answer, err = effect(ctx, own); return err }
		if err = pgx.BeginFunc(ctx, pool, apart); err == nil {
			time.Sleep(30 * time.Millisecond)
		}
		if err != nil || !key.Given() {
`,
	},
}
