package programme

import (
	"encoding/csv"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/rest"
)

func TestP2_StatusTransitions(t *testing.T) {
	all := []Status{Draft, Active, Completed, Archived}
	allowed := map[[2]Status]bool{
		{Draft, Active}:       true,
		{Draft, Archived}:     true,
		{Active, Completed}:   true,
		{Completed, Archived}: true,
	}
	for _, from := range all {
		for _, to := range all {
			if from.CanBecome(to) != allowed[[2]Status{from, to}] {
				t.Errorf("%s to %s", from, to)
			}
		}
	}
}

func TestParseDate_AcceptsOneSpelling(t *testing.T) {
	for _, good := range []string{"2026-04-01", "2024-02-29", "0001-01-01", "9999-12-31"} {
		if day, ok := ParseDate(good); !ok || string(day) != good {
			t.Errorf("%s: %s, %v", good, day, ok)
		}
	}
	for _, bad := range []string{
		"", "2026-4-1", "2026-02-29", "0000-01-01", "-001-01-01", "2026-04-01T00:00:00Z", " 2026-04-01", "20260401",
		"2026-13-01", "10000-01-01",
	} {
		if day, ok := ParseDate(bad); ok {
			t.Errorf("%q: %s", bad, day)
		}
	}
}

func TestChange_OmittedFieldsStayUnchanged(t *testing.T) {
	before := Programme{Details: Details{Name: "Warm Homes", Summary: "Advice", Status: Active}}
	before.StartsOn, before.EndsOn = "2026-04-01", "2026-09-30"
	named, endless := before, before
	named.Name, endless.EndsOn = "Youth Café", ""
	oneDay := before
	oneDay.StartsOn = "2026-09-30"
	for name, c := range map[string]struct {
		change Change
		want   *Programme // nil if the change is refused
	}{
		"a name":                  {Change{Name: &named.Name}, &named},
		"no end":                  {Change{EndsOn: &endless.EndsOn}, &endless},
		"one day":                 {Change{StartsOn: &oneDay.StartsOn}, &oneDay},
		"ends before it starts":   {Change{EndsOn: new(Date("2026-03-31"))}, nil},
		"starts after it ends":    {Change{StartsOn: new(Date("2026-10-01"))}, nil},
		"a name that is too long": {Change{Name: new(strings.Repeat("é", MaxName+1))}, nil},
	} {
		after, err := c.change.Apply(before)
		if (err == nil) != (c.want != nil) || err == nil && after != *c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, after, err, c.want)
		}
	}
}

// FuzzImport checks that either all rows are valid or none is returned, and that every error names a row of the file.
func FuzzImport(f *testing.F) {
	for _, seed := range []string{
		"name\nx\n", "name,status\nx,draft\n,active\n", "\ufeffname\r\n\"a\r\nb\"\r\n", "name\n\"x\n", "summary\nx", "",
		"name,name\nx,y", "startsOn,name\n2026-04-01,x", "name,startsOn,endsOn\nx,2026-04-02,2026-04-01", "name\n\n\nx",
		"name\nx\x00\n", "name\n\xff\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := CheckImport(text); err != nil {
			if _, blames := errors.AsType[rest.Problems](err); !blames {
				t.Errorf("%q: %v, want rest.Problems", text, err)
			}
			return
		}
		rows, _, wrong := ReadImport(text)
		if len(wrong) > 0 && rows != nil || len(wrong) > MaxImportErrors || len(rows) > MaxImportRows {
			t.Errorf("%d rows with %d errors", len(rows), len(wrong))
		}
		for _, e := range wrong {
			if e.Row < 2 || e.Message == "" || e.Row > strings.Count(text, "\n")+2 {
				t.Errorf("%+v", e)
			}
		}
		for _, one := range rows {
			if one.New.Check() != nil || !utf8.ValidString(one.New.Name+one.New.Summary) {
				t.Errorf("%+v", one)
			}
		}
	})
}

// Rows are numbered as in a spreadsheet: empty ones count, and a cell of several lines is in one row.
func TestReadImport_NumbersRowsAsSpreadsheet(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want []int
	}{
		"plain":             {"name,status\nA,draft\nB,gone\n", []int{3}},
		"an empty line":     {"name,status\n\nA,draft\n\n\nB,gone\n,draft\n", []int{6, 7}},
		"CRLF":              {"name,status\r\n\r\nA,draft\r\nB,gone\r\n", []int{4}},
		"a cell of lines":   {"name,status,summary\nA,draft,\"one\ntwo\n\nthree\"\nB,gone,\n", []int{3}},
		"both":              {"\ufeffname,status,summary\r\n\r\nA,gone,\"one\r\ntwo\"\r\n\r\nB,gone,\r\n", []int{3, 5}},
		"quotes":            {"name\n\nA\n\n\"B\n", []int{5}},
		"a stray quote":     {"name\n\nA\nB\"ad\nC\n", []int{4}},
		"number of values":  {"name,status\n\nA\nB,draft,x\n", []int{3, 4}},
		"header not on top": {"\n\nname,status\nA,gone\n", []int{4}},
	} {
		rows, _, wrong := ReadImport(c.file)
		var got []int
		for _, w := range wrong {
			got = append(got, w.Row)
		}
		if !slices.Equal(got, c.want) || rows != nil {
			t.Errorf("%s: rows %v, want %v: %v", name, got, c.want, wrong)
		}
	}
}

func TestReadImport_LimitsRowsAndErrors(t *testing.T) {
	if _, _, wrong := ReadImport("name,startsOn\n" + strings.Repeat(",x\n", 5000)); len(wrong) != MaxImportErrors {
		t.Errorf("%d errors, want %d", len(wrong), MaxImportErrors)
	}
	most := strings.Repeat("x\n\n", MaxImportRows)
	if rows, _, wrong := ReadImport("name\n" + most); len(rows) != MaxImportRows || wrong != nil {
		t.Errorf("%d rows, %v", len(rows), wrong)
	}
	rows, _, wrong := ReadImport("name\n" + most + "x\n")
	if rows != nil || len(wrong) != 1 || wrong[0].Row != 1+2*MaxImportRows+1 {
		t.Errorf("%d rows, %v", len(rows), wrong)
	}
}

// Spreadsheets write semicolons or tabs in place of commas, a byte order mark, and empty columns at the end.
func TestReadImport_ReadsWhatSpreadsheetsWrite(t *testing.T) {
	for name, file := range map[string]string{
		"commas":          "name,externalId,summary\r\nx,7,\"a;b,c\td\"\r\n",
		"semicolons":      "name;externalId;summary\r\nx;7;\"a;b,c\td\"\r\n",
		"tabs":            "name\texternalId\tsummary\nx\t7\t\"a;b,c\td\"\n",
		"byte order mark": "\ufeff\"name\";externalId;summary\nx;7;\"a;b,c\td\"\n",
		"empty columns":   "name;externalId;summary;;;\nx;7;\"a;b,c\td\";;;\n",
		"padded rows":     "\ufeffname,externalId,summary\nx,7,\"a;b,c\td\",,,,\n",
	} {
		rows, byExternalID, wrong := ReadImport(file)
		if CheckImport(file) != nil || len(rows) != 1 || !byExternalID || wrong != nil || rows[0].New.Name != "x" ||
			rows[0].New.Summary != "a;b,c\td" || rows[0].New.ExternalID != "7" {
			t.Errorf("%s: %+v, %v", name, rows, wrong)
		}
	}
}

func TestChange_AcceptsStoredInvalidNameUnlessChanged(t *testing.T) {
	stored := Programme{Details: Details{Name: "\u200b", Status: Draft}}
	summary, name := "What it is for", "\u3164"
	if p, err := (Change{Summary: &summary}).Apply(stored); err != nil || p.Summary != summary ||
		p.Name != stored.Name {
		t.Errorf("%+v, %v", p, err)
	}
	if err := (Change{Name: &name}).Check(); err == nil {
		t.Error("an invisible name is accepted in a change")
	}
	for _, name := range []string{"\u200b", "\u3164", "x\u202ey"} {
		if (Details{Name: name, Status: Draft}).Check() == nil {
			t.Errorf("%+q is accepted", name)
		}
		if rows, _, wrong := ReadImport("name\n" + name + "\n"); len(wrong) != 1 || wrong[0].Field != FieldName ||
			rows != nil {
			t.Errorf("%+q in an import: %v %v", name, rows, wrong)
		}
	}
}

const importBytes = 2 << 20 // the endpoint's limit

func TestImport_RefusesLongHeader(t *testing.T) {
	for name, text := range map[string]string{
		"commas":             "name" + strings.Repeat(",", importBytes),
		"a quoted line":      `"name` + strings.Repeat("\n,", importBytes/2) + `"`,
		"an open quote":      `name,"` + strings.Repeat(",\n", importBytes/2),
		"behind empty lines": strings.Repeat("\r\n", 100) + "name" + strings.Repeat(",", importBytes),
	} {
		allocates(t, name, 64<<10, func() {
			if problems, ok := errors.AsType[rest.Problems](CheckImport(text)); !ok || problems["header"] == "" {
				t.Errorf("%s: %v", name, problems)
			}
		})
	}
	if err := CheckImport(strings.Repeat("\n", importBytes-100) + "summary,name\n"); err != nil {
		t.Error(err)
	}
}

// The memory that a row needs is bounded before the row is split, whatever it contains.
func TestImport_RefusesHugeRowBeforeSplitting(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		row  int
	}{
		"commas":                {"name\nx\n\n" + strings.Repeat(",", importBytes) + "\ny\n", 4},
		"quotes":                {"name\n" + strings.Repeat(`"",`, importBytes/3), 2},
		"lines in one cell":     {"name,summary\nx,\"a\nb\"\n\"" + strings.Repeat("\n", importBytes) + "\"\n", 3},
		"an open quote":         {"name\n\"" + strings.Repeat("x,", importBytes/2), 2},
		"one cell":              {"name\n" + strings.Repeat("x", importBytes), 2},
		"commas in a quote":     {"name\n\"" + strings.Repeat(",", importBytes) + "\"\n", 2},
		"a cell over the bound": {"name\n" + strings.Repeat(",", maxCells) + "\n", 2},
	} {
		allocates(t, name, 256<<10, func() {
			rows, _, wrong := ReadImport(c.text)
			if rows != nil || len(wrong) != 1 || wrong[0].Row != c.row || wrong[0].Message == "" {
				t.Errorf("%s: %d rows, %v", name, len(rows), wrong)
			}
		})
	}
	if _, _, wrong := ReadImport("name\n" + strings.Repeat(",", maxCells-1) + "x\n"); len(wrong) != 1 ||
		!strings.Contains(wrong[0].Message, "Values in this row: 100") {
		t.Errorf("%v", wrong)
	}
}

// allocates checks that do allocates at most so many bytes.
func allocates(t *testing.T, name string, most uint64, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > most {
		t.Errorf("%s: %d bytes were allocated, want at most %d", name, spent, most)
	}
}

// FuzzImport_MeasuredRowsMatchCSV checks that, within the bounds, the measured rows are those of encoding/csv.
func FuzzImport_MeasuredRowsMatchCSV(f *testing.F) {
	for _, text := range []string{
		"a,b\n\"c\nd\",e\n", "a\"b\n\"c\n", "\"a\"b,\n", "\"a\"\"\n\",\r\n\r\nx", "\n\n\"", "a,\"\r\n\"\n", "",
	} {
		for _, comma := range []byte(",;\t") {
			f.Add(comma, strings.ReplaceAll(text, ",", string(comma)))
		}
	}
	f.Fuzz(func(t *testing.T, comma byte, text string) {
		if !strings.ContainsRune(",;\t", rune(comma)) {
			return
		}
		want, got := csv.NewReader(strings.NewReader(text)), newRowReader(text, comma)
		want.Comma, want.FieldsPerRecord = rune(comma), -1
		for {
			wanted, wantErr := want.Read()
			row, err := got.next()
			if errors.Is(err, errTooManyCells) || errors.Is(err, errLongRow) {
				return
			}
			if !slices.Equal(row, wanted) || (err == nil) != (wantErr == nil) ||
				errors.Is(err, io.EOF) != errors.Is(wantErr, io.EOF) {
				t.Fatalf("%q %v, want %q %v", row, err, wanted, wantErr)
			}
			if err != nil {
				return
			}
			if end := int64(len(text) - len(got.rest)); end != want.InputOffset() {
				t.Fatalf("a row ends at byte %d, want %d", end, want.InputOffset())
			}
		}
	})
}
