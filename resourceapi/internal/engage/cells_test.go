package engage

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/page/spreadsheet"
)

func TestCell_MarksFormulasAsText(t *testing.T) {
	cells := map[string]string{
		"\t=1":          "'\t'=1",
		"\r\n=1":        "'\r\n'=1",
		"x;=1+1":        "x;'=1+1",
		"x; =1+1; y":    "x;' =1+1; y",
		"x\t@SUM(1)":    "x\t'@SUM(1)",
		"One line.\n-2": "One line.\n'-2",
	}
	for _, plain := range []string{"", "Ada", "3 + 4", "a=1", "'=1", "One line.\nAnother."} {
		cells[plain] = plain
	}
	for _, formula := range []string{
		"=1+1", "-2", "@SUM(1)", "|calc", "%0A=1", "  =1", "\tplain", "\u200b=1", "\ufeff@x", "\u00a0=1", "＝1",
		"＋1", "+44 20 7946 0958",
	} {
		cells[formula] = "'" + formula
	}
	for text, want := range cells {
		if got := spreadsheet.Cell(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCellsOf_OneForEachField(t *testing.T) {
	fields := []Field{
		{Name: "name"},
		{Name: "hours"},
		{Name: "days"},
		{Name: "privacy"},
		{Name: "about"},
		{Name: "phone", Type: Phone},
		{Name: "fax", Type: Phone}, // stored before answers were checked
		{Name: "mobile", Type: Text},
	}
	stored := `{"phone":"+44 20 7946 0958","fax":"=1+1","mobile":"+44 20 7946 0958","name":"=A1",` +
		`"hours":-3.50,"days":["=Monday","Friday"],"privacy":true,"left":"x"}`
	got, err := CellsOf(fields, json.RawMessage(stored))
	want := []string{"'=A1", "-3.50", "'=Monday; Friday", "true", "", "+44 20 7946 0958", "'=1+1", "'+44 20 7946 0958"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := CellsOf(fields, json.RawMessage(`[]`)); err == nil {
		t.Error("answers that are no object were read")
	}
}
