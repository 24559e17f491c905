package browsertest

// CutPostgres takes the database away from everybody, until the returned function gives it back.
func (s *Site) CutPostgres() (restore func()) {
	s.t.Helper()
	return s.World.Database.Cut(s.t)
}
