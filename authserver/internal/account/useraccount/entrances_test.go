package useraccount_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What an entrance demands of the account that it finds by an e-mail address.
const (
	nothing = "nothing"
	refused = "a proven address, else it is refused with a reason"
	ended   = "a proven address, else all that the account has ends first"
)

// An entrance is a function, or the SQL of a constant, that finds an account or what belongs to one by an e-mail
// address. test is the test of a demand; why is the reason for none.
type entrance struct{ demands, why, test string }

// entrances returns everything that is found by an e-mail address (Proof), by package and name. Imports of the resource
// API name no address of an account.
func entrances() map[string]entrance {
	const (
		mailed   = "the link goes to the mailbox of the address"
		reads    = "shows what its reader may see, and gives nothing"
		own      = "the account's own sign-in: the password decides"
		lessens  = "an operator takes access away"
		supports = "a supporter is no account"
		operates = "an operator's command: gives no access to a workspace"
	)
	return map[string]entrance{
		// sign-in and linking
		"session.Verify":            {demands: nothing, why: own},
		"signin.beginWithCode":      {demands: nothing, why: own},
		"postgres.UserByEmail":      {demands: nothing, why: "its callers are in this table"},
		"signin.decide":             {demands: ended, test: "TestProven_UpstreamSignInEndsWhatUnprovenAccountHad"},
		"postgres.LinkIdentity":     {demands: ended, test: "TestProven_UpstreamSignInEndsWhatUnprovenAccountHad"},
		"app.prepareReset":          {demands: ended, test: "TestProven_ResetOfUnprovenAccountEndsWhatItHad"},
		"postgres.BeginReset":       {demands: ended, test: "TestProven_ResetOfUnprovenAccountEndsWhatItHad"},
		"postgres.BeginEmailChange": {demands: nothing, why: mailed},
		"postgres.emailChangeSQL":   {demands: nothing, why: mailed},
		"postgres.emailTaken":       {demands: nothing, why: "an address has one account"},
		"postgres.changeEmail":      {demands: nothing, why: "writes; an operator's change proves nothing"},
		"postgres.eraseUser":        {demands: refused, test: "TestProven_DeletedUnprovenAccountDeclinesNothing"},
		"postgres.recipientAt":      {demands: nothing, why: "gives a mail its language and time zone alone"},
		"postgres.unsent":           {demands: nothing, why: "refuses what its inviter sees"},
		"postgres.saveInvitation":   {demands: nothing, why: "refuses what its inviter sees"},
		"postgres.limitedSQL":       {demands: nothing, why: "counts mails to an address"},
		"postgres.Offer":            {demands: nothing, why: "says so only if the link was mailed"},
		"postgres.isAddressOf":      {demands: refused, test: "TestProven_UnprovenAccountAcceptsNoInvitation"},
		"postgres.acceptAsNewUser":  {demands: nothing, why: "makes an account; finds none"},
		"postgres.Decline":          {demands: nothing, why: "the holder of the link gives nothing"},
		"postgres.peopleSQL":        {demands: nothing, why: reads},
		"postgres.Connections":      {demands: nothing, why: reads},
		// operators
		"postgres.AddUser":         {demands: nothing, why: "makes an account, by the operator's word"},
		"postgres.asTypedSQL":      {demands: nothing, why: "replaces a spelling of the same address"},
		"postgres.respellUser":     {demands: nothing, why: "replaces a spelling of the same address"},
		"postgres.DuplicateUsers":  {demands: nothing, why: reads},
		"postgres.FindUser":        {demands: nothing, why: "its callers are in this table"},
		"admin.findUser":           {demands: nothing, why: "its callers are in this table"},
		"admin.findMember":         {demands: nothing, why: "its callers are in this table"},
		"admin.change":             {demands: refused, test: "TestProven_OperatorAddsOnlyProvenUsers"},
		"admin.ResetLink":          {demands: ended, test: "TestProven_ResetOfUnprovenAccountEndsWhatItHad"},
		"admin.ConfirmEmail":       {demands: nothing, why: "the operator's word proves it"},
		"admin.SetEmail":           {demands: nothing, why: "leaves an unproven account unproven"},
		"admin.SetPassword":        {demands: nothing, why: operates},
		"admin.setDisabled":        {demands: nothing, why: operates},
		"admin.ShowUser":           {demands: nothing, why: reads},
		"admin.ListSignInMethods":  {demands: nothing, why: reads},
		"admin.filter":             {demands: nothing, why: reads},
		"admin.RemoveSignInMethod": {demands: nothing, why: lessens},
		"admin.RemoveMember":       {demands: nothing, why: lessens},
		"admin.DeleteUser":         {demands: nothing, why: lessens},
		// resourceapi
		"postgres.lockPerson":       {demands: nothing, why: supports},
		"postgres.otherSupporters":  {demands: nothing, why: supports},
		"postgres.ListedMembers":    {demands: nothing, why: reads},
		"postgres.ensureSupporters": {demands: nothing, why: supports},
		// access requests name their user by id, and show the address to administrators
		"postgres.SendAccessRequest": {demands: refused, test: "TestProven_UnprovenUserCannotAskForAccess"},
	}
}

const column = `(new_|old_)?email(_hash|_key|_canonical)?`

var (
	declared = regexp.MustCompile(`(?m)^(?:func (?:\((?:\w+ )?\*?(\w+)[^)]*\) )?(\w+)|` +
		`(?:const |var |\t)(\w+)\s+= ` + "`" + `)`)
	comment  = regexp.MustCompile(`(?m)^\s*//.*$`)
	quoted   = regexp.MustCompile("(?s)`.*?`|\"[^\"\n]*\"")
	compares = regexp.MustCompile(`\b` + column + `\s*(=|<>)\s*(\$|@|\w+\.|\(|any)|(=|<>)\s*\w+\.` + column + `\b` +
		`|strpos\([^\n]*\bemail\b|on conflict \(email\)`)
	calls = regexp.MustCompile(`\.(UserByEmail|FindUser|BeginReset)\(|\bs\.(findUser|findMember)\(ctx`)
)

// TestEntrances_AreInTheTable finds the functions and the SQL that compare an e-mail address, and the callers of the
// functions that find users by one.
func TestEntrances_AreInTheTable(t *testing.T) {
	t.Parallel()
	table, tests, found := entrances(), "", map[string]string{}
	root := filepath.Join("..", "..", "..", "..")
	for _, part := range []string{"authserver", "resourceapi"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text := comment.ReplaceAllString(string(source), "")
			if strings.HasSuffix(path, "_test.go") {
				tests += text
				return nil
			}
			for name, body := range declarations(text) {
				statements := strings.Join(quoted.FindAllString(body, -1), "\n")
				finds := compares.MatchString(statements) || calls.MatchString(body)
				if finds && !strings.Contains(path, "testing") {
					found[filepath.Base(filepath.Dir(path))+"."+name] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range found {
		if _, listed := table[name]; !listed {
			t.Errorf("%s (%s) finds something by an e-mail address and is not in the table", name, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch e := table[name]; {
		case name != "postgres.SendAccessRequest" && found[name] == "": // it is found by the user's id
			t.Errorf("%s finds nothing by an e-mail address any more", name)
		case e.demands == nothing && e.why == "":
			t.Errorf("%s demands nothing, without a reason", name)
		case e.demands != nothing && !strings.Contains(tests, "func "+e.test+"("):
			t.Errorf("%s: there is no test %q", name, e.test)
		}
	}
}

// declarations splits a file at its functions and the constants that begin with SQL. The function of an operator's
// command has the name of the command.
func declarations(text string) map[string]string {
	all := map[string]string{}
	places := declared.FindAllStringSubmatchIndex(text, -1)
	for i, place := range places {
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		name := ""
		for group := 1; group <= 3; group++ { // a receiver's type, a function, a constant
			if at := place[2*group]; at >= 0 && (name == "" || text[at:place[2*group+1]] != "run") {
				name = text[at:place[2*group+1]]
			}
		}
		all[name] += text[place[0]:end]
	}
	return all
}
