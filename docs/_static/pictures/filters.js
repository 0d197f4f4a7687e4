/* Filters of the table of claims; without this script the table shows all. */
(function () {
  'use strict';
  const table = document.getElementById('claims'), rows = Array.from(table.tBodies[0].rows);
  const form = document.createElement('form'), count = document.createElement('p');
  form.className = 'filters';
  count.setAttribute('role', 'status');
  function labelled(name, tag) {
    const label = document.createElement('label'), control = document.createElement(tag);
    label.append(`${name} `, control);
    form.append(label);
    return control;
  }
  const chosen = ['paper', 'verdict', 'topic'].map((name) => {
    const select = labelled(name, 'select'), values = [...new Set(rows.map((row) => row.dataset[name]))].sort();
    select.append(new Option('all', ''), ...values.map((value) => new Option(value, value)));
    return [name, select];
  });
  const words = labelled('words', 'input');
  words.type = 'search';
  function filter() {
    rows.forEach((row) => {
      const isChosen = chosen.every(([name, select]) => !select.value || row.dataset[name] === select.value);
      row.hidden = !isChosen || !row.textContent.toLowerCase().includes(words.value.toLowerCase());
    });
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims shown`;
  }
  form.addEventListener('input', filter);
  form.addEventListener('submit', (event) => event.preventDefault());
  table.before(form, count);
  filter();
}());
