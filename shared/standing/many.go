package standing

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Many is the statement that asks several questions, and its arguments: it has a row for each whose credential is known, with its place
// among them, from 1 on. The arrays come from subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made.
func Many(questions []Question) (sql string, args []any) {
	if len(questions) == 1 {
		return oneSQL, questions[0].Args()
	}
	return manySQL, manyArgs(questions)
}

const (
	oneSQL  = `select 1 place, s.* from account.standing($1, $2, $3, $4) s`
	manySQL = `select asked.place, s.*
from unnest((select $1::bytea[]), (select $2::uuid[]), (select $3::uuid[]), (select $4::text[]))
  with ordinality asked (pat_hash, grant_id, tenant, module, place)
cross join lateral account.standing(asked.pat_hash, asked.grant_id, asked.tenant, asked.module) s`
)

func manyArgs(questions []Question) []any {
	pats, modules := make([][]byte, len(questions)), make([]string, len(questions))
	grants, tenants := make([]*uuid.UUID, len(questions)), make([]*uuid.UUID, len(questions))
	for i, q := range questions {
		pats[i], modules[i] = q.PATHash, q.Module
		grants[i], tenants[i] = q.named()
	}
	return []any{pats, grants, tenants, modules}
}

// ScanMany reads the answer of Many's statement to as many questions, in their order, and closes rows. Of a credential that does not exist it is nil.
func ScanMany(rows pgx.Rows, questions int) ([]*Standing, error) {
	all := make([]*Standing, questions)
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (place int, err error) {
		s, err := scan(row, &place)
		if err == nil {
			all[place-1] = &s
		}
		return place, err
	})
	if err != nil {
		return nil, fmt.Errorf("read standings: %w", err)
	}
	return all, nil
}
