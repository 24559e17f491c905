package standing

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Names are the display names of the parties to a credential. The fields are the columns of account.names, in
// order.
type Names struct {
	User       string
	Workspace  string
	Credential string // the name of the client or of the personal access token
	CreatedAt  time.Time
}

// NamesSQL is the query, for callers that batch it with SQL. Its arguments are NamesArgs.
const NamesSQL = `select * from account.names($1, $2, $3)`

// NamesArgs returns the arguments of NamesSQL.
func (q Query) NamesArgs() []any { return []any{q.PATHash, q.GrantID, q.GrantIn} }

// ScanNames reads the result of NamesSQL and closes rows. It returns ErrUnknown if the credential does not
// exist.
func ScanNames(rows pgx.Rows) (Names, error) {
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Names])
	if errors.Is(err, pgx.ErrNoRows) {
		return Names{}, ErrUnknown
	}
	if err != nil {
		return Names{}, fmt.Errorf("read names: %w", err)
	}
	return n, nil
}

// AskableSQL reads what the client of a grant could be granted if it requested consent again. Its arguments are
// the grant's id and its workspace, and its result is null if there is no such grant.
const AskableSQL = `select account.askable($1, $2)`
