package programme

import (
	"encoding/csv"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/rest"
)

const importBytes = 2 << 20 // the endpoint's limit

func TestImport_RefusesLongHeader(t *testing.T) {
	for name, text := range map[string]string{
		"commas":             "name" + strings.Repeat(",", importBytes),
		"a quoted line":      `"name` + strings.Repeat("\n,", importBytes/2) + `"`,
		"an open quote":      `name,"` + strings.Repeat(",\n", importBytes/2),
		"behind empty lines": strings.Repeat("\r\n", 100) + "name" + strings.Repeat(",", importBytes),
	} {
		spent := allocated(func() {
			if problems, ok := errors.AsType[rest.Problems](CheckImport(text)); !ok || problems["header"] == "" {
				t.Errorf("%s: %v", name, problems)
			}
		})
		if spent > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", name, spent)
		}
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
		spent := allocated(func() {
			rows, _, wrong := ReadImport(c.text)
			if rows != nil || len(wrong) != 1 || wrong[0].Row != c.row || wrong[0].Message == "" {
				t.Errorf("%s: %d rows, %v", name, len(rows), wrong)
			}
		})
		if spent > 256<<10 {
			t.Errorf("%s: %d bytes were allocated", name, spent)
		}
	}
	if _, _, wrong := ReadImport("name\n" + strings.Repeat(",", maxCells-1) + "x\n"); len(wrong) != 1 ||
		!strings.Contains(wrong[0].Message, "Values in this row: 100") {
		t.Errorf("%v", wrong)
	}
}

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
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
