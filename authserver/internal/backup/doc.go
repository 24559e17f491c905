// Package backup makes, checks and restores backups of the database with PostgreSQL's own programs. It is for operators
// (deploy/runbooks).
//
// It connects to the libpq services almoner, as the owner of the database, and almoner_admin, as a superuser. A
// backup or database is replaced only after the new one has been verified. A function that fails leaves everything as
// it was, unless its error says otherwise, and its error says what to do.
package backup
