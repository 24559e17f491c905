package harness

import "testing"

// Text returns the single text value of a query, or "" if it is null.
func (w *Database) Text(t testing.TB, sql string, args ...any) string {
	t.Helper()
	var text *string
	if err := w.rows.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if text == nil {
		return ""
	}
	return *text
}

// Define runs SQL that affects no row, such as DDL.
func (w *Database) Define(t testing.TB, sql string) {
	t.Helper()
	if _, err := w.rows.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
