package postgres

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Before programmes are distributed, they write their events row by row again: the same events as before.
func TestDistribution_ProgrammesWriteSameEventsRowByRow(t *testing.T) {
	testkit.SkipIfDistributed(t, "it is distributed")
	t.Parallel()
	w, _ := ownStore(t)
	var d migrate.Distribution
	must(t, json.Unmarshal(distributionJSON, &d))
	const triggers = `select count(*) from pg_trigger
		where tgrelid = 'resource.programmes'::regclass and tgname like 'note%'`
	w.Wants(3, triggers)
	before := eventsOfProgrammes(t, w)
	for range 2 {
		for _, sql := range d.First {
			w.Exec(sql)
		}
	}
	w.Wants(1, triggers)
	after := eventsOfProgrammes(t, w)
	slices.Sort(before)
	slices.Sort(after)
	if len(after) != 7 || !slices.Equal(before, after) {
		t.Errorf("%q, before %q", after, before)
	}
}
