package standing

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Names are what people call the parties to a credential. The fields are the columns of account.names, in their order.
type Names struct {
	User       string
	Workspace  string
	Credential string // the client's name, or what the personal access token was called
	CreatedAt  time.Time
}

// NamesSQL is the query, for callers that put it in a batch with SQL. Its arguments are NamesArgs.
const NamesSQL = `select * from account.names($1, $2)`

// NamesArgs are the arguments of NamesSQL.
func (q Query) NamesArgs() []any { return []any{q.PATHash, q.GrantID} }

// ScanNames reads the answer of NamesSQL and closes rows. It returns ErrUnknown when the credential does not exist.
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

// AskableSQL reads what the client of a grant could be given if it asked again. Its argument is the grant's id, and its
// answer null where there is no such grant.
const AskableSQL = `select account.askable($1)`
