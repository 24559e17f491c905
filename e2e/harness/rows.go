package harness

import "testing"

// Text answers a query for one text, "" where it is null.
func (w *World) Text(t testing.TB, sql string, args ...any) string {
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

// Define runs SQL that touches no row, as a definition does.
func (w *World) Define(t testing.TB, sql string) {
	t.Helper()
	if _, err := w.rows.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
