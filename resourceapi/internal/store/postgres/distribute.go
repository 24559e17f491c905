package postgres

import (
	"context"
	"io"

	"github.com/almonerhq/almoner/shared/database/migrate"
)

// Distribute distributes the records by workspace among the nodes of a Citus cluster and reports each step to out. It
// connects as the owner of the database. The tables of authserver must already be distributed. Imports and jobs stay on
// the first node.
func Distribute(ctx context.Context, url string, out io.Writer) error {
	return migrate.Distribution{
		Reference: []string{"resource.forms"},
		With:      "account.events",
		ByWorkspace: []string{
			"resource.programmes",
			"resource.submissions",
			"resource.supporters",
			"resource.supporters_left",
			"resource.list_locks",
			"resource.idempotency_keys",
			"resource.erasures",
		},
		Constraints: []migrate.Constraint{
			{
				Table:      "resource.submissions",
				Name:       "submissions_form",
				Definition: "foreign key (tenant_id, form_id) references resource.forms (tenant_id, id)",
			},
			{
				Table:      "resource.submissions",
				Name:       "submissions_supporter",
				Definition: "foreign key (tenant_id, supporter_id) references resource.supporters (tenant_id, id)",
			},
			{
				Table: "resource.supporters_left",
				Name:  "supporters_left_supporter",
				Definition: "foreign key (tenant_id, supporter_id) references resource.supporters (tenant_id, id) " +
					"on delete cascade",
			},
		},
		Functions: []string{"resource.is_coordinator()"},
	}.Apply(ctx, url, out)
}
